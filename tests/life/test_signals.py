"""Signals: who is interrupted ends, tokens go back, and an answer is never read by who did not ask for it."""

import os
import signal
import subprocess
import sys

import pytest

from batchlimit import Quota, RateLimiter
from batchlimit.base.clock import steady
from batchlimit.stores import RedisStore
from benchmarks.audited_fleet.audit import Admission, excess
from tests.depth import only_deep
from tests.life import task_storm
from tests.life.signal_storm import ALL_KINDS
from tests.servers import Server
from tests.sync.stage import KEY, process, said, until

HUNDRED = Quota(0.001, 100)


@pytest.mark.parametrize("call", ["limiter.acquire(KEY, 100)", "limiter.acquire_all({KEY: 100, 'another': 1})"])
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_who_waits_ends_when_told_and_its_tokens_go_back(
    valkey: Server, valkey_store: RedisStore, prefix: str, ended_by: signal.Signals, call: str
) -> None:
    program = f"""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    limiter = limiter_of("0.001/s burst 100", sizer=FixedBatch(50))
    limiter.acquire(KEY)
    def tell():
        while not limiter.statistics().waiting:
            pass
        say("waits")
    threading.Thread(target=tell, daemon=True).start()
    try:
        {call}
    except KeyboardInterrupt:
        sys.exit(2)
    """
    with process(program, valkey.url, prefix) as other:
        assert other.hear() == "waits"
        os.kill(other.pid, ended_by)
        assert other.end() == {signal.SIGINT: 2, signal.SIGTERM: 3}[ended_by]
    level = valkey_store.peek(KEY, HUNDRED)
    assert (level.level, level.outstanding) == (99, 0)


def test_a_task_that_waits_ends_with_its_loop_and_its_tokens_go_back(
    valkey: Server, valkey_store: RedisStore, prefix: str
) -> None:
    program = """
    import asyncio
    async def main():
        limiter = AsyncRateLimiter.from_url(
            URL, "0.001/s burst 100", prefix=PREFIX, connect_timeout=30.0, deadline=30.0, sizer=FixedBatch(50))
        await limiter.acquire(KEY)
        waiting = asyncio.ensure_future(limiter.acquire(KEY, 100))
        while not limiter.statistics().waiting:
            await asyncio.sleep(0)
        say("waits")
        await waiting
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(2)
    """
    with process(program, valkey.url, prefix) as other:
        assert other.hear() == "waits"
        os.kill(other.pid, signal.SIGINT)
        assert other.end() == 2
    level = valkey_store.peek(KEY, HUNDRED)
    assert (level.level, level.outstanding) == (99, 0)


def test_a_handler_that_raises_while_the_answer_is_under_way_leaves_it_to_nobody_else(
    private: Server, private_store: RedisStore, prefix: str
) -> None:
    """The next ask once could have read it, were the connection used again: another key's tokens, for this one."""
    program = """
    import redis
    server = redis.Redis.from_url(URL)

    class Enough(Exception):
        pass

    def raise_it(*_):
        raise Enough

    signal.signal(signal.SIGALRM, raise_it)
    limiter = limiter_of({"rich": "0.001/s burst 1000", "*": "0.001/s burst 100"}, sizer=FixedBatch(50))
    limiter.acquire("first")
    for i in range(5):
        server.execute_command("CLIENT", "PAUSE", 600_000, "WRITE")
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            limiter.try_acquire("rich")
            say("it went on")
        except Enough:
            pass
        server.execute_command("CLIENT", "UNPAUSE")
        assert limiter.try_acquire(f"poor-{i}")
        assert spend(limiter, f"poor-{i}") == 99
    spent = spend(limiter, "rich")
    limiter.close()
    say(spent)
    """
    rich = Quota(0.001, 1000)
    (spent,) = map(int, said(program, private.url, prefix))
    assert spent + private_store.peek("rich", rich).level <= 1000
    assert spent >= 1000 - 5 * 50


def test_threads_that_were_stopped_past_their_lease_spend_nothing_of_it(
    valkey: Server, valkey_store: RedisStore, prefix: str
) -> None:
    """The bucket is full again when they go on, and another instance takes all of it in that moment. Audited."""
    program = """
    from batchlimit.base.clock import steady
    from batchlimit.sync.refresher import Refresher
    Refresher.watch = lambda *_: None  # it may be the first to wake, and let go of what has expired; or not
    limiter = limiter_of("300/s burst 300", sizer=FixedBatch(100))
    limiter.acquire(KEY)
    go = threading.Event()
    logs = [[] for _ in range(3)]

    def work(log):
        go.wait()
        for _ in range(100):
            before = steady()
            if limiter.try_acquire(KEY):
                log.append((before, steady()))

    threads = [threading.Thread(target=work, args=[log]) for log in logs]
    for each in threads:
        each.start()
    say(limiter.statistics().held)
    listen()
    go.set()
    for each in threads:
        each.join()
    for log in logs:
        for before, after in log:
            print(before, after)
    limiter.close()
    """
    quota = Quota(300.0, 300)
    with RateLimiter(valkey_store, quota) as here, process(program, valkey.url, prefix) as other:
        assert other.hear() == "99"
        os.kill(other.pid, signal.SIGSTOP)
        os.waitpid(other.pid, os.WUNTRACED)
        other.tell()
        log: list[Admission] = []

        def took_all() -> bool:
            before = steady()
            if here.try_acquire(KEY, 300):
                log.append((before, steady(), 300))
            return bool(log)

        until(took_all)
        os.kill(other.pid, signal.SIGCONT)
        for line in other.rest().splitlines():
            begun, ended = map(float, line.split())
            log.append((begun, ended, 1))
        assert other.end() == 0
    assert excess(log, quota) == 0.0


# Signals that raise, thousands of them: no key is dead, nobody waits for ever, no slot is lost


def play(kind: str, raised: int) -> None:
    program = [sys.executable, "-m", "tests.life.signal_storm", kind, f"{raised}"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["rate", "several", "spends", "concurrency", "keyed"])
def test_after_a_thousand_signals_amid_its_calls_a_limiter_serves(kind: str) -> None:
    """Callers waited for ever for the answer to an ask whose caller was gone, and slots had no holder."""
    play(kind, 1000)


@only_deep
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_after_many_thousand_signals_amid_its_calls_a_limiter_is_as_before(kind: str) -> None:
    play(kind, 20_000 if kind in task_storm.KINDS else 100_000)

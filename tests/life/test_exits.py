"""The end of an interpreter: soon, by itself, and without a word, whatever the server and the user's threads do."""

import pytest

from batchlimit import Quota
from batchlimit.stores import RedisStore
from tests.servers import Server
from tests.sync.stage import KEY, process, said

PAUSED = """
import redis
redis.Redis.from_url(URL).execute_command("CLIENT", "PAUSE", 600_000, "WRITE")
"""
"""From here on the server hangs: it accepts, and answers nothing that might write."""

SHORT = "RateLimiter.from_url(URL, '0.001/s burst 100', prefix=PREFIX, connect_timeout=0.5, sizer=FixedBatch(50))"


def indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())


@pytest.mark.parametrize(("daemon", "holds"), [(True, True), (False, False)], ids=["daemon", "thread"])
def test_a_process_with_an_ask_at_a_server_that_hangs_ends_by_itself(
    private: Server, prefix: str, daemon: bool, holds: bool
) -> None:
    program = f"""
    limiter = {SHORT}
    if {holds}:
        patience, limiter._registry.store.deadline = limiter._registry.store.deadline, 30.0
        for i in range(200):
            limiter.acquire(f"key-{{i}}")
        limiter._registry.store.deadline = patience
    before = limiter.statistics().calls
{indented(PAUSED)}

    def ask():
        try:
            limiter.acquire(KEY)
        except (StoreUnavailable, LimiterClosed):
            pass

    threading.Thread(target=ask, daemon={daemon}).start()
    while limiter.statistics().calls == before:
        pass
    say("ends")
    """
    with process(program, private.url, prefix) as other:
        assert other.hear() == "ends"
        assert other.end() == 0
        assert "Traceback" not in other.errors()  # that the store is away may have been logged


def test_a_process_ends_sooner_than_an_ask_that_is_more_patient(private: Server, prefix: str) -> None:
    program = f"""
    limiter = RateLimiter.from_url(URL, "5/s", prefix=PREFIX, connect_timeout=30.0)
{indented(PAUSED)}
    threading.Thread(target=limiter.acquire, args=[KEY], daemon=True).start()
    while not limiter.statistics().calls:
        pass
    say("ends")
    """
    assert said(program, private.url, prefix) == ["ends"]


def test_a_loop_with_an_ask_at_a_server_that_hangs_ends_by_itself(private: Server, prefix: str) -> None:
    program = f"""
    import asyncio
{indented(PAUSED)}
    async def main():
        limiter = AsyncRateLimiter.from_url(URL, "5/s", prefix=PREFIX, connect_timeout=30.0, deadline=30.0)
        asking = asyncio.ensure_future(limiter.acquire(KEY))
        while not limiter.statistics().calls:
            await asyncio.sleep(0)
        asking.cancel()
    asyncio.run(main())
    say("ends")
    """
    assert said(program, private.url, prefix, logs=False) == ["ends"]


def test_a_process_ends_amid_threads_that_go_on_asking(valkey: Server, valkey_store: RedisStore, prefix: str) -> None:
    """They get LimiterClosed, or are never run again; whatever was not admitted is in the buckets again."""
    program = """
    import atexit
    from batchlimit.sync import registry
    limiter = limiter_of("0.001/s burst 100_000", sizer=FixedBatch(50))
    limiter.acquire(KEY)
    atexit.unregister(registry._at_exit)
    atexit.register(lambda: say(limiter.statistics().admitted))  # the first to register is the last to be called
    atexit.register(registry._at_exit)

    def work(i):
        try:
            while True:
                limiter.try_acquire(f"{KEY}-{i}")
                limiter.acquire(KEY, 3)
        except LimiterClosed:
            pass

    for i in range(3):
        threading.Thread(target=work, args=[i], daemon=True).start()
    while limiter.statistics().admitted < 1000:
        pass
    say("ends")
    """
    quota = Quota(0.001, 100_000)
    ends, admitted = said(program, valkey.url, prefix, logs=False)
    assert ends == "ends"
    levels = [valkey_store.peek(key, quota).level for key in (KEY, *(f"{KEY}-{i}" for i in range(3)))]
    assert sum(levels) == 4 * quota.burst - int(admitted)


def test_coroutines_at_a_threaded_limiter_do_not_keep_a_process_from_ending(private: Server, prefix: str) -> None:
    """They ask in threads of the limiter's own, which the interpreter waits for."""
    program = f"""
    import asyncio
    limiter = {SHORT}
{indented(PAUSED)}
    @limiter.limit(KEY)
    async def call():
        pass

    async def main():
        calling = asyncio.ensure_future(call())
        while not limiter.statistics().calls:
            await asyncio.sleep(0)
        calling.cancel()
    asyncio.run(main())
    say("ends")
    """
    assert said(program, private.url, prefix, logs=False) == ["ends"]

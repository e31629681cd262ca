"""The end of a limiter, a key and a process: tokens go back, threads end, and nothing is spent twice after a fork."""

import contextlib
import gc
import math
import threading
from collections.abc import Callable

import pytest

from batchlimit import LimiterClosed, Quota, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.stores import MemoryStore, RedisStore, Store
from batchlimit.stores.client.scripts import bucket_name
from tests.depth import depth
from tests.reservoir.world import Moody
from tests.servers import Server
from tests.sync.stage import DEADLINE, KEY, Clock, Stage, away, lapsed, process, said, start, together, until

HUNDRED = Quota(0.001, 100)


def pass_to_due(limiter: RateLimiter, clock: Clock, key: str = KEY) -> None:
    """Let time pass until there is something to do for this key, and the background thread do it."""
    reservoir = limiter._entries[key].reservoir
    until(lambda: reservoir.lifecycle.due() < math.inf)  # nothing is under way any more
    clock.now = reservoir.lifecycle.due()
    limiter._registry._refresher._bell.put(None)
    until(lambda: reservoir.lifecycle.due() > clock.now)


@pytest.fixture
def keepers() -> Callable[[], int]:
    """How many threads of limiters run that were not there before the test."""
    before = set(threading.enumerate())

    def count() -> int:
        return len([each for each in set(threading.enumerate()) - before if each.name == "batchlimit-refresher"])

    return count


# By close


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Stage]:
    """The stages that limiters opened by themselves, by any URL."""
    stages: list[Stage] = []

    def open_stage(_url: str, **_options: object) -> Stage:
        stages.append(Stage())
        return stages[-1]

    monkeypatch.setattr(RateLimiter, "_open", open_stage)
    return stages


def test_close_from_many_threads_at_once(clock: Clock) -> None:
    stage = Stage(MemoryStore(clock))
    limiter = RateLimiter(stage, HUNDRED, sizer=FixedBatch(50), clock=clock)
    limiter.acquire(KEY)
    together(8, limiter.close)
    until(lambda: stage.peek(KEY, HUNDRED).level == 99)
    assert len(stage.backs) == 1


def test_callers_in_full_swing_end_with_limiter_closed_and_nothing_else() -> None:
    """Time stands still: a lease that ends on a slow machine would be another story."""
    clock = Clock()
    limiter = RateLimiter(MemoryStore(clock), Quota(0.001, 2**40), sizer=FixedBatch(100), clock=clock)

    def swing() -> int:
        calls = 0
        with contextlib.suppress(LimiterClosed):
            while limiter.try_acquire(KEY):
                calls += 1
        return calls

    threads = [start(swing) for _ in range(8)]
    until(lambda: limiter.statistics().admitted > 1000)
    limiter.close()
    assert sum(each.result(DEADLINE) for each in threads) == limiter.statistics().admitted


# By itself


def test_a_limiter_that_is_garbage_gives_back(lasting_store: Store, keepers: Callable[[], int]) -> None:
    limiter = RateLimiter(lasting_store, HUNDRED, sizer=FixedBatch(50))
    limiter.acquire(KEY)
    assert keepers() == 1
    del limiter
    gc.collect()
    until(lambda: lasting_store.peek(KEY, HUNDRED)[:3] == (99, 0, 0))
    until(lambda: keepers() == 0)


def test_a_limiter_that_is_garbage_closes_its_store(opened: list[Stage]) -> None:
    for used in (True, False):
        limiter = RateLimiter.from_url("memory://", HUNDRED)
        if used:
            limiter.acquire(KEY)
        del limiter
        gc.collect()
        until(lambda: opened[-1].closed > 0)


def test_one_thread_serves_all_keys(keepers: Callable[[], int]) -> None:
    with RateLimiter(MemoryStore(), HUNDRED) as limiter:
        together(8, lambda: [limiter.try_acquire(f"key-{i}") for i in range(50)])
        assert keepers() == 1


_ENDS = ["pass", "threading.Thread(target=lambda: limiter.try_acquire(KEY, 0)).start()", "wait_in_line()"]


@pytest.mark.parametrize("end", [*_ENDS, *depth([], ["sys.exit(3)", "raise RuntimeError", "del limiter"])])
def test_the_end_of_the_interpreter_gives_back(valkey: Server, valkey_store: RedisStore, prefix: str, end: str) -> None:
    program = f"""
    limiter = limiter_of("0.001/s burst 100", sizer=FixedBatch(50))
    limiter.acquire(KEY)
    say(limiter.statistics().held)

    def wait_in_line():
        threading.Thread(target=limiter.acquire, args=[KEY, 100], daemon=True).start()
        while not limiter.statistics().waiting:
            pass
        limiter.try_acquire(KEY)  # waits for the answer to the other's ask, and is refused

    {end}
    """
    with process(program, valkey.url, prefix) as other:
        assert other.hear() == "49"
        other.end()
    level = valkey_store.peek(KEY, HUNDRED)
    assert (level.level, level.outstanding) == (99, 0)


def test_tokens_that_arrive_as_the_interpreter_ends_go_back(
    valkey: Server, valkey_store: RedisStore, prefix: str
) -> None:
    """A daemon thread has asked, and its answer is under way."""
    program = """
    import atexit, redis
    asked, ending = threading.Event(), threading.Event()

    class Late(RedisStore):
        def take(self, *arguments):
            grant = super().take(*arguments)
            asked.set()
            ending.wait()
            return grant

    client = redis.Redis.from_url(URL)
    limiter = RateLimiter(Late(client, prefix=PREFIX), "0.001/s burst 100", sizer=FixedBatch(50))
    atexit.register(ending.set)  # the last to register is the first to run
    threading.Thread(target=limiter.acquire, args=[KEY], daemon=True).start()
    asked.wait()
    say("ends")
    """
    assert said(program, valkey.url, prefix) == ["ends"]
    level = valkey_store.peek(KEY, HUNDRED)
    assert level.outstanding == 0
    assert level.level >= 99


def test_tokens_of_a_bucket_that_was_lost_are_dropped_at_the_next_ask(
    valkey: Server, valkey_store: RedisStore, prefix: str, clock: Clock, far_away: None
) -> None:
    stage = Stage(valkey_store)
    with RateLimiter(stage, HUNDRED, sizer=FixedBatch(50), clock=clock) as limiter, valkey.client() as client:
        limiter.acquire(KEY)
        assert client.delete(bucket_name(prefix, KEY)) == 1
        limiter.acquire(KEY, 60)
        assert stage.asks[1].held == 49
        assert limiter.statistics().held + 60 <= valkey_store.peek(KEY, HUNDRED).outstanding


# The background thread


def test_the_keeper_outlives_a_store_that_is_away(clock: Clock) -> None:
    stage = Stage(MemoryStore(clock))
    with RateLimiter(stage, HUNDRED, sizer=FixedBatch(50), clock=clock) as limiter:
        limiter.acquire(KEY)

        stage.before = stage.before_back = away
        pass_to_due(limiter, clock)
        until(lambda: limiter.statistics().failures == 1)
        stage.before = stage.before_back = lambda: None
        limiter.acquire("another")
        for _ in range(2):
            pass_to_due(limiter, clock, "another")
        until(lambda: stage.peek("another", HUNDRED).outstanding == 0)
        assert stage.peek("another", HUNDRED).level == 99


@pytest.mark.parametrize("idle_after", [1e10, 1e300, float("inf")])
def test_the_keeper_outlives_a_key_that_is_kept_for_ever(idle_after: float, clock: Clock) -> None:
    quotas = {"single": Quota(0.001, 1), "*": HUNDRED}
    with RateLimiter(MemoryStore(clock), quotas, idle_after=idle_after, sizer=FixedBatch(50), clock=clock) as limiter:
        limiter.acquire("single")
        for _ in range(2):
            limiter.acquire(KEY)
            assert limiter.statistics().held > 0
            for _ in range(2):
                pass_to_due(limiter, clock)
            until(lambda: limiter.statistics().held == 0)
        assert limiter.statistics().keys == 2


# Idle keys


def test_a_key_that_was_dropped_can_be_used_again(clock: Clock) -> None:
    stage = Stage(MemoryStore(clock))
    with RateLimiter(stage, HUNDRED, idle_after=0.0, sizer=FixedBatch(1), clock=clock) as limiter:
        for spent in range(1, 6):
            limiter.acquire(KEY)
            until(lambda: limiter.statistics().keys == 0)
            assert limiter.statistics().admitted == spent
        assert limiter.peek(KEY).remaining == 95
        seqs = [ask.seq for ask in stage.asks]
        assert seqs == sorted(set(seqs))


# Fork


def test_a_forked_child_begins_with_nothing_and_is_another_host(valkey: Server, prefix: str) -> None:
    program = """
    limiter = limiter_of("0.001/s burst 1000", sizer=FixedBatch(50))
    limiter.acquire(KEY)
    registry, keyspace = limiter._registry, limiter._registry._keyspace
    figures = lambda: (limiter.statistics().held, limiter.statistics().admitted, registry._keyspace == keyspace)
    say(*figures())
    fork(lambda: figures())
    say(*figures())
    """
    assert said(program, valkey.url, prefix) == ["49 1 True", "(0, 0, False)", "49 1 True"]


def test_a_child_that_ends_gives_nothing_of_its_parents_back(
    valkey: Server, valkey_store: RedisStore, prefix: str
) -> None:
    program = """
    limiter = limiter_of("0.001/s burst 100", sizer=FixedBatch(50))
    limiter.acquire(KEY)
    if (child := os.fork()) == 0:
        sys.exit(0)  # with all that is done at exit
    os.waitpid(child, 0)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    with process(program, valkey.url, prefix) as other:
        assert other.end() == -9
    until(lambda: lapsed(valkey_store, KEY, HUNDRED))
    # A parent that a busy machine keeps for seconds renews its lease, and takes the token that it has spent.
    assert valkey_store.peek(KEY, HUNDRED).level <= 50


def test_a_fork_while_every_lock_is_held_by_another_does_not_lock_the_child_out(valkey: Server, prefix: str) -> None:
    program = """
    quota = "0.001/s burst 1000"
    limiters = [limiter_of(quota), RateLimiter(MemoryStore(), quota), RateLimiter.from_url("memory://", quota)]
    for limiter in limiters:
        limiter.acquire(KEY)
    held, done = threading.Event(), threading.Event()

    def hold(locks):
        if locks:
            with locks[0]:
                hold(locks[1:])
        else:
            held.set()
            done.wait()

    locks = [lock for each in limiters for lock in (each._registry._lock, each._registry.entry(KEY).lock)]
    locks += [each._registry._refresher._starting for each in limiters]
    locks += [each._registry.store._lock for each in limiters] + [each._registry.store._pool._news for each in limiters]
    locks += [each._registry._opened._lock for each in limiters[1:]]
    locks += [limiters[0]._registry._opened._transport.client.connection_pool._lock]  # redis-py would wait for it
    threading.Thread(target=hold, args=[locks], daemon=True).start()
    held.wait()

    def work():
        for limiter in limiters:
            limiter.acquire(KEY)
            limiter.acquire("another")
            limiter.refund(KEY)
            limiter.close()
        return [each.statistics().admitted for each in limiters]

    fork(work)
    done.set()
    """
    assert said(program, valkey.url, prefix) == ["[2, 2, 2]"]


def test_forks_amid_busy_threads(valkey: Server, prefix: str) -> None:
    program = """
    limiter = limiter_of("1_000_000/s burst 100_000", sizer=FixedBatch(3))
    limiter.acquire(KEY)  # redis-py imports as it first connects, and no child survives a fork during an import

    def work():
        try:
            while True:
                for i in range(20):
                    limiter.try_acquire(f"{KEY}-{i}")
        except LimiterClosed:
            pass  # a daemon thread that prints a traceback as the interpreter ends may take it down

    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()

    def refused():
        told = [limiter.decide(f"{KEY}-{i}") for i in range(20)]
        limiter.close()
        return [each for each in told if not each.allowed]

    for _ in range(10):
        fork(refused)
    """
    with process(program, valkey.url, prefix) as other:
        for _ in range(10):
            assert other.hear() == "[]"
        assert other.end() == 0


def test_a_childs_keeper_gives_back(valkey: Server, valkey_store: RedisStore, prefix: str) -> None:
    program = """
    passed = 0.0
    limiter = limiter_of("0.001/s burst 100", sizer=FixedBatch(50), clock=lambda: time.monotonic() + passed)
    limiter.acquire("another")
    def work():
        global passed
        limiter.acquire(KEY)
        for _ in range(2):  # renewed, for it was in use; and then returned
            leased = limiter._entries[KEY].reservoir
            passed += leased.lifecycle.due() - limiter._clock()
            limiter._registry._refresher._bell.put(None)
            while not limiter._clock() < leased.lifecycle.due() < float("inf"):
                pass
        say("leased")
        listen()
        return [each.name for each in threading.enumerate()].count("batchlimit-refresher")
    fork(work)
    """
    with process(program, valkey.url, prefix) as other:
        assert other.hear() == "leased"
        until(lambda: valkey_store.peek(KEY, HUNDRED).outstanding == 0)
        assert valkey_store.peek(KEY, HUNDRED).level == 99
        other.tell()
        assert other.hear() == "1"
        assert other.end() == 0


def test_a_closed_limiter_stays_closed_in_the_child_and_buckets_in_memory_go_on_there(
    valkey: Server, prefix: str
) -> None:
    program = """
    limiter = RateLimiter.from_url("memory://", "0.001/s burst 10")
    assert spend(limiter) == 10
    closed = limiter_of("0.001/s burst 100")
    closed.close()
    def work():
        try:
            closed.try_acquire(KEY)
        except LimiterClosed:
            return limiter.try_acquire(KEY), limiter.try_acquire("another")
    fork(work)
    """
    assert said(program, valkey.url, prefix) == ["(False, True)"]


def test_a_sizer_that_fails_in_the_background_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("batchlimit.sync.refresher._PATIENCE", 0.01)
    sizer = Moody()
    with RateLimiter(MemoryStore(), "100/s burst 10", sizer=sizer) as limiter:
        with limiter.reserve(KEY, 10) as reservation:
            sizer.broken = True
            reservation.settle(15)
        until(lambda: caplog.text.count("looking after") >= 2)
        assert limiter.statistics().owed == 5
        sizer.broken = False
        until(lambda: limiter.statistics().owed == 0)

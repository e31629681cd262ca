"""Where no thread can be started, as in an isolated subinterpreter: callers fetch for themselves, in bounded memory."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from batchlimit import RateLimiter, StoreUnavailable
from batchlimit.batching import FixedBatch
from batchlimit.stores import MemoryStore, outage
from batchlimit.sync import waiting_thread
from batchlimit.sync.key_entry import KeyEntry
from tests.sync.stage import KEY, Clock, Stage, nothing, until

HUNDRED = "0.001/s burst 100"


class NoThreads:
    """No thread can be started; it counts who tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
        self.tries = 0
        self._monkeypatch, self._refused = monkeypatch, refused

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._monkeypatch.context() as patched:
            patched.setattr(threading.Thread, self._refused, self._refuse)
            yield

    def _refuse(self, *_: object, **__: object) -> None:
        self.tries += 1
        raise RuntimeError("daemon threads are disabled in this (sub)interpreter")


@pytest.fixture(params=["__init__", "start"])
def no_threads(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> NoThreads:
    return NoThreads(monkeypatch, request.param)


def places() -> int:
    """How many there are in memory."""
    gc.collect()
    return sum(type(each) is KeyEntry for each in gc.get_objects())


def test_a_limiter_works_without_its_refresher(no_threads: NoThreads, caplog: pytest.LogCaptureFixture) -> None:
    with no_threads(), RateLimiter(MemoryStore(), HUNDRED, sizer=FixedBatch(10)) as limiter:
        assert sum(limiter.try_acquire("key") for _ in range(120)) == 100
    assert "not renewed or given back in time: daemon threads" in caplog.text


def test_a_flood_of_keys_leaves_no_more_in_memory_than_there_may_be(no_threads: NoThreads) -> None:
    """All of them once waited for a thread that never came."""
    before = places()
    with no_threads(), RateLimiter(MemoryStore(), HUNDRED, max_keys=10) as limiter:
        for i in range(3000):
            assert limiter.try_acquire(f"key-{i}")
        assert places() - before <= 20, "those that live, and as many places of the gone"


def test_a_flood_of_keys_leaves_no_more_while_the_thread_is_busy() -> None:
    before = places()
    with RateLimiter(MemoryStore(), HUNDRED, max_keys=10) as limiter:
        refresher = limiter._registry._refresher
        refresher._thread = threading.current_thread()  # none is started, and nobody looks
        for i in range(3000):
            assert limiter.try_acquire(f"key-{i}")
        assert places() - before <= 20, "those that live, and as many places of the gone"
        assert refresher._bell.qsize() <= 1


def test_it_is_tried_again_and_again_once_a_second_at_most_and_told_of_once(
    no_threads: NoThreads, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with no_threads(), RateLimiter(MemoryStore(), HUNDRED, clock=clock) as limiter:
        for i in range(100):
            assert limiter.try_acquire(f"key-{i}")
            clock.pass_by(0.1)
        assert 3 <= no_threads.tries <= 11, "in 10 s: with the first key of each quarter of `idle_after`"
    assert caplog.text.count("not renewed or given back") == 1


def test_all_keys_are_looked_after_once_a_thread_can_be_had(no_threads: NoThreads, clock: Clock) -> None:
    stage = Stage()
    with RateLimiter(stage, HUNDRED, sizer=FixedBatch(10), clock=clock) as limiter:
        with no_threads():
            for i in range(20):
                assert limiter.try_acquire(f"key-{i}")
        clock.pass_by(50.0)  # whatever was leased is over, and all keys are idle
        assert limiter.try_acquire(KEY)
        until(lambda: limiter.statistics().keys == 1)


def test_coroutines_at_a_threaded_limiter_leave_nothing_behind(no_threads: NoThreads) -> None:
    waiting_thread._renew_threads()  # other tests' threads would do

    async def main() -> None:
        with RateLimiter(MemoryStore(), HUNDRED, sizer=FixedBatch(1)) as limiter:

            @limiter.limit(KEY)
            async def work() -> str:
                return "done"

            for _ in range(20):
                with pytest.raises(RuntimeError):
                    await work()
            assert limiter.statistics().waiting == 0
            assert waiting_thread._threads._work_queue.qsize() <= 1

    with no_threads():
        asyncio.run(main())


@pytest.fixture
def away(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A store that nobody reaches. The clock of the test says how long it has been away."""
    monkeypatch.setattr(outage, "steady", clock)
    stage = Stage()

    def fail() -> None:
        assert len(stage.asks) < 20, "somebody asks without end"
        raise StoreUnavailable("away")

    stage.before = fail
    return stage


def test_whoever_waits_for_a_store_that_is_away_is_told_so(no_threads: NoThreads, away: Stage) -> None:
    """Python 3.12.1 starts no thread once the main thread has ended, though others go on."""
    with no_threads(), RateLimiter(away, HUNDRED) as limiter:
        with pytest.raises(StoreUnavailable, match="away"):
            limiter.acquire(KEY)
        assert len(away.asks) == 3


def test_after_each_pause_a_call_is_the_probe(
    no_threads: NoThreads, away: Stage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with no_threads(), RateLimiter(away, HUNDRED) as limiter:
        for asks in (3, 4, 5):
            assert [limiter.try_acquire(f"key-{i}") for i in range(5)] == [False] * 5
            assert len(away.asks) == asks
            clock.pass_by(outage.WITHOUT)
        away.before = nothing
        assert limiter.try_acquire(KEY)
        assert limiter.statistics().available
    assert caplog.text.count("is away") == caplog.text.count("is back after 3.0 s") == 1


def test_the_probes_are_a_threads_once_it_can_be_had(no_threads: NoThreads, away: Stage, clock: Clock) -> None:
    with RateLimiter(away, HUNDRED) as limiter:
        with no_threads():
            for _ in range(3):
                assert not limiter.try_acquire(KEY)
        away.before = nothing
        clock.pass_by(outage.WITHOUT)
        assert not limiter.try_acquire(KEY)
        until(lambda: limiter.statistics().available)
        assert away.probes == 1

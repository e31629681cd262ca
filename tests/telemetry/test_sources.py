"""What is read, as long as somebody else has it; a source that fails takes nothing from the others."""

import gc
import logging
import threading
from dataclasses import replace

import pytest

from batchlimit import RateLimiter, Statistics
from batchlimit.base.histogram import Histogram
from batchlimit.concurrency import ConcurrencyStatistics
from batchlimit.stores import MemoryStore
from batchlimit.telemetry.metrics import AVAILABLE, LAST_RTT, LIMIT, TOKENS
from batchlimit.telemetry.reading import Reading, Series, Sources
from tests.sync.stage import Clock, in_child


def acquired(reading: Reading, limiter: str) -> float:
    """Tokens of any source."""
    sources = [Series(TOKENS, (limiter, "*", "acquired", source)) for source in ("memory", "store", "fallback")]
    found = [reading[each] for each in sources]
    return sum(each for each in found if not isinstance(each, Histogram))


def limiter(calls: int) -> RateLimiter:
    made = RateLimiter(MemoryStore(clock := Clock()), "1000/s burst 1000", clock=clock)
    for _ in range(calls):
        assert made.try_acquire("ann")
    return made


def test_sources_of_one_name_are_added_up_and_others_are_told_apart() -> None:
    found, mine = Sources(), [limiter(1), limiter(2), limiter(4)]
    for name, each in zip(("api", "api", "jobs"), mine, strict=True):
        found.add(name, each)
    reading = found.read()
    assert acquired(reading, "api") == 3
    assert acquired(reading, "jobs") == 4


class Seen:
    """A source that counted this."""

    def __init__(self, seen: object) -> None:
        self._seen = seen

    def statistics(self) -> object:
        return self._seen


def test_sources_of_one_name_reach_the_store_if_all_of_them_do_and_take_as_long_as_the_slowest() -> None:
    found, rate = Sources(), Statistics(0, 0, 0, 0, 0, 0)
    calls = ConcurrencyStatistics(5, 0, 0, 0, 0, 0, 0, 0, 0, {}, {}, (), last_rtt=0.5)
    mine = [rate, replace(rate, available=False), rate, calls, replace(calls, last_rtt=2.5), calls]
    sources = [Seen(each) for each in mine]
    for each in sources:
        found.add("api", each)
    reading = found.read()
    assert reading[Series(AVAILABLE, ("api",))] == 0
    assert reading[Series(LAST_RTT, ("api", ""))] == 2.5
    assert reading[Series(LIMIT, ("api", ""))] == 15


def test_a_limiter_that_nobody_has_any_more_is_not_kept_alive() -> None:
    found, mine = Sources(), limiter(1)
    found.add("api", mine)
    assert found.read()
    del mine
    gc.collect()
    assert (found.read(), len(found)) == ({}, 0)


def test_a_counter_does_not_fall_though_tokens_are_uncounted_that_were_taken_too_late() -> None:
    found, mine = Sources(), limiter(5)
    found.add("api", mine)
    assert acquired(found.read(), "api") == 5
    mine._registry.entry("ann").took_late(2)
    assert acquired(found.read(), "api") == 5
    for _ in range(3):
        assert mine.try_acquire("ann")
    assert acquired(found.read(), "api") == 6


def test_a_forked_child_counts_from_nothing() -> None:
    found, mine = Sources(), limiter(5)
    found.add("api", mine)
    found.read()
    assert in_child(lambda: mine.try_acquire("ann") and acquired(found.read(), "api") == 1)


def test_a_source_that_fails_is_left_out_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, failing, mine = Sources(), limiter(1), limiter(1)
    found.add("", failing)
    found.add("api", mine)
    found.read()
    monkeypatch.setattr(failing, "statistics", lambda: 1 / 0)
    with caplog.at_level(logging.ERROR, "batchlimit"):
        assert acquired(found.read(), "api") == 1
        found.read()
    assert [len(each.getMessage()) < 300 for each in caplog.records] == [True], "no series are told"


def test_what_counts_nothing_is_no_source() -> None:
    with pytest.raises(TypeError, match="counts nothing"):
        Sources().add("api", object())


def test_statistics_may_be_read_while_threads_come_with_new_keys() -> None:
    mine = RateLimiter.from_url("memory://", "1000/s burst 1000", max_keys=100)
    found, were_read = Sources(), threading.Event()
    found.add("api", mine)
    keys: list[str] = []

    def call() -> None:
        while not were_read.is_set():
            keys.append(f"key {len(keys)}")
            assert mine.try_acquire(keys[-1])

    thread = threading.Thread(target=call)
    thread.start()
    while len(keys) < 3000:
        assert found.read()
    were_read.set()
    thread.join()
    assert acquired(found.read(), "api") == len(keys)

import math
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.concurrency.watchers import LatencyWatcher

MS = 1_000_000


def observed(watcher: LatencyWatcher, *rtts: int) -> str | None:
    for rtt in rtts:
        watcher.observe(rtt)
    return watcher.poll()


@pytest.mark.parametrize(("rtt", "is_event"), [(0, False), (500 * MS, False), (500 * MS + 1, True)])
def test_a_call_is_slow_if_it_took_longer_than_the_target(rtt: int, is_event: bool) -> None:
    assert (observed(LatencyWatcher(0.5), rtt) is not None) is is_event


@pytest.mark.parametrize(
    ("percentile", "calls", "slow", "is_event"),
    [
        (0.95, 20, 1, False),  # the 19th of 20 kept the target
        (0.95, 20, 2, True),
        (0.95, 19, 1, True),
        (0.5, 2, 1, False),
        (0.5, 3, 2, True),
        (0.07, 100, 93, False),  # 0.07 * 100 is a hair above 7, as a double
        (0.07, 100, 94, True),
        (1.0, 1000, 1, True),
        (1.0, 1000, 0, False),
    ],
)
def test_so_many_calls_may_be_slow(percentile: float, calls: int, slow: int, is_event: bool) -> None:
    rtts = [600 * MS] * slow + [1] * (calls - slow)
    assert (observed(LatencyWatcher(0.5, percentile), *rtts) is not None) is is_event


@given(
    percent=st.integers(1, 100),
    periods=st.lists(st.lists(st.integers(0, 1000), max_size=60), max_size=5),
)
def test_it_is_the_percentile_of_the_nearest_rank(percent: int, periods: list[list[int]]) -> None:
    watcher = LatencyWatcher(0.5, percent / 100)
    for rtts in periods:
        rank = -(-len(rtts) * percent // 100)
        slow = bool(rtts) and sorted(rtts)[rank - 1] > 500
        assert (observed(watcher, *(rtt * MS for rtt in rtts)) is not None) is slow
        assert not rtts or (bisect_right(sorted(rtts), 500) < rank) is slow


def test_calls_take_no_memory() -> None:
    watcher = LatencyWatcher()
    observed(watcher, *range(1000))
    assert all(isinstance(getattr(watcher, each), int | float | tuple) for each in watcher.__slots__)


@pytest.mark.parametrize("seconds", [0, -0.5, math.inf, math.nan])
def test_a_target_is_a_time(seconds: float) -> None:
    with pytest.raises(ValueError, match=repr(seconds)):
        LatencyWatcher(seconds)


@pytest.mark.parametrize("percentile", [0, -0.5, 1.5, 95])
def test_a_percentile_is_a_share(percentile: float) -> None:
    with pytest.raises(ValueError, match=repr(percentile)):
        LatencyWatcher(0.5, percentile)


def test_it_shows_its_state() -> None:
    watcher = LatencyWatcher(0.5)
    observed(watcher, 1, 600 * MS)
    assert repr(watcher) == "<LatencyWatcher: 1 of 2 calls took over 0.5 s>"

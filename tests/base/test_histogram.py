"""Durations are counted in few buckets, by several threads at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.base.histogram import BOUNDS, Durations, Histogram
from tests.sync.stage import together


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (0.0005, 0), (0.0006, 1), (60.0, 15), (61.0, 16)])
def test_a_bucket_has_what_took_no_longer_than_its_bound(seconds: float, bucket: int) -> None:
    durations = Durations()
    durations.add(seconds)
    assert durations.read().counts.index(1) == bucket
    assert durations.read().up_to == (0,) * bucket + (1,) * (len(BOUNDS) + 1 - bucket)


def test_histograms_are_added_up() -> None:
    durations = Durations()
    for seconds in (0.003, 0.003, 70.0):
        durations.add(seconds)
    both = durations.read().plus(durations.read())
    assert (both.total, both.counts[3], both.counts[-1]) == (6, 4, 2)
    assert both.seconds[3] == pytest.approx(0.012)
    assert both.seconds[-1] == 140
    assert Histogram().total == 0


def test_threads_lose_none() -> None:
    durations = Durations()

    def add() -> None:
        for _ in range(2000):
            durations.add(0.01)

    together(8, add)
    assert durations.read().total == 16_000
    assert sum(durations.read().seconds) == pytest.approx(160)


@given(st.lists(st.lists(st.floats(0, 100))))
def test_what_was_added_is_told_as_durations_of_the_same_counts_and_sum(looks: list[list[float]]) -> None:
    durations, told, known = Durations(), Durations(), Histogram()
    for added in looks:
        for seconds in added:
            durations.add(seconds)
        more, known = durations.read().since(known)
        for seconds, many in more:
            for _ in range(many):
                told.add(seconds)
        assert told.read().counts == durations.read().counts
    assert told.read().seconds == pytest.approx(durations.read().seconds)


def test_nothing_is_told_of_a_source_that_has_gone() -> None:
    before = Histogram((5, *Histogram().counts[1:]))
    assert Histogram().since(before) == ([], before)

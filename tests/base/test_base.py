"""Steps that a handler interrupts, decisions, and histograms."""

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit import Decision, Quota
from batchlimit.base.histogram import BOUNDS, Durations, Histogram
from batchlimit.base.steps import Steps, run
from batchlimit.reservoir.statistics import decision
from tests.sync.stage import together


class _Interrupting:
    """A step that has a handler raise while `run` looks at it."""

    @property
    def __class__(self) -> type:
        raise KeyboardInterrupt

    @__class__.setter
    def __class__(self, kind: type) -> None: ...


def test_a_handler_that_raises_between_two_steps_ends_them_before_its_error_is_handled() -> None:
    ended = []

    def steps() -> Steps[None]:
        try:
            yield _Interrupting()
        finally:
            ended.append(True)

    went = steps()
    with pytest.raises(KeyboardInterrupt):
        run(went)
    assert ended  # though `went` is still there: it is not left to the garbage collector


# A Decision is written fast, and is then as frozen as any other


def test_a_decision_that_was_written_as_a_draft_is_one_that_was_made() -> None:
    quota = Quota.parse("100/s; 1000/h")
    drafted = decision(quota, 40, 0.0, "store", 1, (90.0, 400.0))
    made = Decision(True, 100, 40, 0.0, 2160.0, "store", quota, 1)
    assert (drafted, hash(drafted), repr(drafted)) == (made, hash(made), repr(made))
    assert (type(drafted), drafted.quota, drafted.binding) == (Decision, quota, 1)
    assert copy.deepcopy(drafted) == pickle.loads(pickle.dumps(drafted)) == made
    with pytest.raises(FrozenInstanceError):
        drafted.remaining = 41  # type: ignore[misc]


# Durations are counted in few buckets, by several threads at a time


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

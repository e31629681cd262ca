"""The audit accuses exactly those who broke the promise, by as much as they surely did."""

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit import Quota
from benchmarks.audited_fleet.audit import Admission, allowance, equals, evenness, excess, jain, starvation
from benchmarks.audited_fleet.caller import CallLog
from benchmarks.audited_fleet.instance import InstanceLog
from benchmarks.audited_fleet.plan import Phase, Plan


def at(*instants: float, cost: int = 1) -> list[Admission]:
    return [(instant, instant, cost) for instant in instants]


@pytest.mark.parametrize(
    ("admissions", "expected"),
    [(at(*range(6)), 0), (at(0, 0, 0), 1), (at(*range(10)), 3.1), (at(0, 0, 0, *range(1, 10)), 5.1)],
)
def test_the_worst_of_several_bandwidths_counts(admissions: list[Admission], expected: float) -> None:
    assert excess(admissions, Quota(1, 2, also=[Quota(0.1, 6)])) == pytest.approx(expected)


def test_a_quota_of_nothing_forbids_everything() -> None:
    assert excess(at(1, 2, cost=2), Quota(0, 0)) == 4


quotas = st.builds(Quota, st.sampled_from([0.5, 1.0, 3.0, 1000.0]), st.integers(1, 8))
gaps = st.one_of(st.just(0.0), st.floats(0, 0.01), st.floats(0, 5))
widths = st.one_of(st.just(0.0), st.floats(0, 0.01), st.floats(0, 5))
calls = st.lists(st.tuples(gaps, st.integers(1, 8), widths, widths), max_size=60)


def honest(quota: Quota, wanted: list[tuple[float, int, float, float]]) -> list[tuple[float, int, float, float]]:
    """What a token bucket admits of (seconds since the last call, cost, ...), with instants in place of gaps."""
    level, now, admitted = float(quota.burst), 1e6, []
    for gap, cost, early, late in wanted:
        level, now = min(quota.burst, level + gap * quota.rate), now + gap
        if cost <= level:
            level -= cost
            admitted.append((now, cost, early, late))
    return admitted


@given(quotas, calls)
def test_a_token_bucket_is_never_accused(quota: Quota, wanted: list[tuple[float, int, float, float]]) -> None:
    log = [(now - early, now + late, cost) for now, cost, early, late in honest(quota, wanted)]
    assert excess(log, quota) == 0


@given(quotas, calls, st.integers(1, 5), st.integers(0, 60))
def test_tokens_admitted_beyond_an_empty_bucket_are_found_exactly(
    quota: Quota, wanted: list[tuple[float, int, float, float]], extra: int, place: int
) -> None:
    log = [(now, now, cost) for now, cost, _, _ in honest(quota, wanted)]
    emptied = (log[place % len(log)][0] if log else 1e6) + 1e3
    log = [(before, after, cost) for before, after, cost in log if after <= emptied]
    log += [(emptied, emptied, quota.burst), (emptied, emptied, extra)]
    assert excess(log, quota) == pytest.approx(extra)


intervals = st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(1, 4)).map(
    lambda drawn: (drawn[0] / 4, (drawn[0] + drawn[1]) / 4, drawn[2])
)


@given(quotas, st.lists(intervals, min_size=1, max_size=25))
def test_it_is_the_worst_of_all_windows(quota: Quota, log: list[Admission]) -> None:
    def debt(since: float, until: float) -> float:
        surely = sum(cost for before, after, cost in log if since <= before and after <= until)
        return surely - quota.burst - quota.rate * (until - since)

    windows = [(before, after) for before, _, _ in log for _, after, _ in log if before <= after]
    worst = max(debt(since, until) for since, until in windows)
    assert excess(log, quota) == pytest.approx(max(0, worst))


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ([], 0),
        ([0, 0, 0], 0),
        ([5, 0, 0], 5),
        ([99], 12),
        ([99, 99, 99], 16),
        # What overflows in a quiet spell is lost: asked for late it is not there any more.
        ([0, 0, 99], 12),
        ([10, 0, 0, 99], 10 + 8),
    ],
)
def test_the_allowance_equals_an_unbatched_bucket(offered: list[float], expected: float) -> None:
    assert allowance(offered, 0.5, Quota(4, 10)) == pytest.approx(expected)


def test_the_allowance_obeys_every_bandwidth() -> None:
    assert allowance([99, 99], 1, Quota(4, 10, also=[Quota(1, 12)])) == 14


# Fairness is judged between processes that want the same; starvation is the time of a process that asks in vain


def process(*calls: tuple[float, float, bool]) -> InstanceLog:
    """(before, after, admitted) of each call."""
    logs = {True: CallLog(), False: CallLog()}
    for before, after, admitted in calls:
        logs[admitted].add(before, after, 1, 0)
    return InstanceLog(logs[True], logs[False], array("q"), 0.0, 0)


def test_only_processes_of_equal_demand_at_equal_times_are_compared() -> None:
    whole, late = (0.0, 1.0), (0.5, 1.0)
    phases = (Phase(1.0, 10.0),)
    assert equals(Plan("", "1/s", "", 3, 1, phases)) == [[0, 1, 2]]
    assert equals(Plan("", "1/s", "", 4, 1, phases, weights=(1, 2, 1, 3))) == [[0, 2]]
    assert equals(Plan("", "1/s", "", 3, 1, phases, presence=(whole, late, whole))) == [[0, 2]]
    assert equals(Plan("", "1/s", "", 1, 1, phases)) == []


@pytest.mark.parametrize(
    ("shares", "index", "poorest"),
    [([5, 5, 5], 1.0, 1.0), ([3, 0, 0], 1 / 3, 0.0), ([1, 3], 0.8, 1 / 3), ([0, 0], math.nan, math.nan)],
)
def test_the_indices(shares: list[int], index: float, poorest: float) -> None:
    assert jain(shares) == pytest.approx(index, nan_ok=True)
    assert evenness(shares) == pytest.approx(poorest, nan_ok=True)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([], 0.0),
        ([(0.0, 0.5, True), (3.0, 4.0, True)], 0.0),
        ([(1.0, 1.25, False)], 0.25),
        ([(1.0, 1.25, False), (2.0, 2.5, False), (3.0, 3.5, True), (9.0, 9.25, False)], 1.5),
        # A process that stopped asking was not starved.
        ([(1.0, 1.25, False), (9.0, 9.5, True)], 0.25),
        # One call's long wait is not the process's.
        ([(1.0, 9.5, False), (2.0, 9.0, True)], 0.5),
        # In order of time, not of the log.
        ([(5.0, 5.5, False), (4.0, 4.5, True), (1.0, 1.5, False)], 0.5),
    ],
)
def test_the_longest_time_in_vain(calls: list[tuple[float, float, bool]], expected: float) -> None:
    assert starvation(process(*calls)) == expected

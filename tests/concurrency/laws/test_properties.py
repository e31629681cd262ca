"""What holds of every law, whatever it is told, and then of each law by itself."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.concurrency.law import Law, Sample
from batchlimit.concurrency.laws import (
    AIMD,
    Fixed,
    Gitaly,
    Gradient,
    Gradient2,
    PercentileWindow,
    Periodic,
    Settable,
    Tumbling,
    Vegas,
    Watched,
    Windowed,
)
from tests.concurrency.laws.traces import GOLDEN, Trace, golden, law_of, left_the_track, traces
from tests.concurrency.laws.world import MS, drop, limits, sample

_EXTREMES = st.sampled_from([0, 1, -1, 2**53, 2**53 + 1, 2**63, 10**400, -(10**400)])
_USUAL = st.integers(1, 10**10)
SAMPLES = st.lists(
    st.builds(
        Sample,
        start_ns=st.integers(0, 10**11) | _EXTREMES,
        rtt_ns=_USUAL | st.integers(0, 3) | _EXTREMES,
        in_flight=st.integers(0, 300) | _EXTREMES,
        dropped=st.booleans(),
    ),
    max_size=80,
)
Build = Callable[[int, int, int], Law]
LAWS: dict[str, Build] = {
    "AIMD": lambda low, at, high: AIMD(minimum=low, initial=at, maximum=high, backoff_ratio=0.5, timeout=1),
    "Vegas": lambda low, at, high: Vegas(initial=at, maximum=high, probe_multiplier=1),
    "Vegas, smoothed": lambda low, at, high: Vegas(initial=at, maximum=high, smoothing=0.3, decrease=lambda up: up / 9),
    "Gradient2": lambda low, at, high: Gradient2(minimum=low, initial=at, maximum=high, smoothing=0.9, long_window=5),
    "Gradient": lambda low, at, high: Gradient(minimum=low, initial=at, maximum=high, queue_size=1, probe_interval=9),
    "Gitaly": lambda low, at, high: Gitaly(minimum=low, initial=at, maximum=high),
    "Windowed": lambda low, at, high: Windowed(Gradient2(minimum=low, initial=at, maximum=high), min_rtt=0),
    "Windowed Vegas": lambda low, at, high: Windowed(
        Vegas(initial=at, maximum=high), window=PercentileWindow(0.01, 10), min_window=0.1, min_rtt=0
    ),
    "Periodic": lambda low, at, high: Periodic(
        AIMD(minimum=low, initial=at, maximum=high, timeout=5), every=0.1, last=7
    ),
    "Tumbling": lambda low, at, high: Tumbling(
        AIMD(minimum=low, initial=at, maximum=high, timeout=5), calls=7, every=0.1
    ),
    "Watched": lambda low, at, high: Watched(AIMD(minimum=low, initial=at, maximum=high, timeout=5)),
}
BOUNDS = st.lists(st.integers(1, 500) | st.just(2**31 - 1), min_size=3, max_size=3).map(sorted)


def usual() -> Gradient2:
    """Twenty calls of which each took 10 ms up to now, so often that one more hardly counts."""
    law = Gradient2(initial=20, minimum=1, warmup=1, long_window=2**31 - 1, tolerance=1.0)
    law.update(Sample(0, 10_000_000, 0))
    return law


@pytest.mark.parametrize("name", LAWS)
@given(bounds=BOUNDS, samples=SAMPLES)
def test_a_limit_is_a_whole_number_within_its_bounds(name: str, bounds: list[int], samples: list[Sample]) -> None:
    low, initial, high = bounds
    law = LAWS[name](low, initial, high)
    floor = 1 if "Vegas" in name else low  # which has no minimum
    assert law.limit == initial
    for each in samples:
        limit = law.update(each)
        assert type(limit) is int
        assert limit == law.limit
        assert floor <= limit <= high


@pytest.mark.parametrize("name", LAWS)
@given(bounds=BOUNDS, samples=SAMPLES)
def test_the_same_samples_lead_to_the_same_limit(name: str, bounds: list[int], samples: list[Sample]) -> None:
    one, other = LAWS[name](*bounds), LAWS[name](*bounds)
    assert [one.update(each) for each in samples] == [other.update(each) for each in samples]
    assert repr(one) == repr(other)


@given(
    smoothing=st.floats(0, 1, exclude_min=True),
    initial=st.integers(1, 1000),
    maximum=st.integers(1, 1000),
    samples=SAMPLES,
)
def test_no_rounding_takes_vegas_to_a_limit_of_nothing(
    smoothing: float, initial: int, maximum: int, samples: list[Sample]
) -> None:
    law = Vegas(initial=initial, maximum=maximum, smoothing=smoothing, decrease=lambda up: up / 2)
    for each in samples:
        assert 1 <= law.update(each) <= max(initial, maximum)


@given(periods=st.lists(st.lists(st.sampled_from(["cpu", "memory"]), max_size=3)), bounds=BOUNDS)
def test_gitaly_stays_within_its_bounds(periods: list[list[str]], bounds: list[int]) -> None:
    low, initial, high = bounds
    law = Gitaly(minimum=low, initial=initial, maximum=high)
    for events in periods:
        before = law.limit
        assert low <= law.calibrate(events, 0) <= high
        assert law.limit <= before if events else law.limit >= before


def test_the_default_timeout_is_a_second() -> None:
    assert limits(AIMD(initial=100), [sample(1000), sample(1001)]) == [101, 90]


def test_a_timeout_is_rounded_to_the_nearest_nanosecond() -> None:
    assert 1.001 * 1e9 < 1_001_000_000
    assert limits(AIMD(initial=100, timeout=1.001), [sample(1001)]) == [101]


def test_it_shows_its_limit_and_bounds() -> None:
    assert repr(AIMD(timeout=5)) == "<AIMD 20 of 20..200>"


def test_no_sample_changes_a_fixed_limit() -> None:
    law = Fixed(7)
    assert limits(law, [sample(), drop(), sample(0, 0)]) == [7, 7, 7]
    assert law.limit == 7
    assert repr(law) == "Fixed(7)"


def test_a_settable_limit_is_what_was_set_last() -> None:
    law = Settable(7)
    law.set_limit(3)
    assert limits(law, [sample(), drop()]) == [3, 3]
    assert repr(law) == "Settable(3)"


def hundred(**given: Any) -> Gradient:
    """A hundred calls, four of which may wait, and calls of 10 ms where none does; it never probes."""
    law = Gradient(**{"initial": 100, "queue_size": 4, "probe_interval": None, **given})
    law.update(sample(10, in_flight=0))
    return law


@pytest.mark.parametrize(
    ("told", "estimate"),
    [
        (sample(10), 104.0),  # growth is not smoothed
        (sample(20), 104.0),  # tolerated
        (sample(25), 0.8 * 100 + 0.2 * (80 + 4)),
        (sample(20.5), 100 * (20 / 20.5) + 4),
        (sample(40), 0.8 * 100 + 0.2 * (50 + 4)),
        (sample(1000), 0.8 * 100 + 0.2 * (50 + 4)),  # no less than half
        (sample(5), 104.0),
        (sample(10, in_flight=49), 100.0),  # less than half was in use
        (sample(40, in_flight=49), 100.0),
        (sample(10, in_flight=50), 104.0),
        (drop(10), 0.8 * 100 + 0.2 * 90),
        (sample(10, in_flight=0, dropped=True), 0.8 * 100 + 0.2 * 90),
    ],
)
def test_a_step_follows_the_gradient(told: Sample, estimate: float) -> None:
    law = hundred()
    assert law.update(told) == int(estimate) == law.limit
    assert law.estimated_limit == estimate


def test_a_step_to_the_same_limit_is_not_one_down() -> None:
    law = Gradient(initial=10, minimum=20, backoff_ratio=1.0)
    assert law.update(drop()) == 10


def test_the_root_of_the_limit_may_wait_unless_told() -> None:
    assert limits(Gradient(initial=99), [sample()] * 3) == [108, 118, 128]


def test_a_probe_falls_to_the_queue_and_forgets_the_least_rtt() -> None:
    jitters = iter([0.0, 0.75, 0.0])
    law = Gradient(initial=100, probe_interval=4, jitter=lambda: next(jitters))
    assert law.probe_countdown == 4
    seen = [(law.update(sample(10, 10)), law.rtt_noload_ns // MS, law.probe_countdown) for _ in range(13)]
    before = [(100, 10, 3), (100, 10, 2), (100, 10, 1), (100, 10, 0)]
    # 4 + 0.75 x 4 samples until the next; there is growth only up to twice what is in use
    after = [(14, 10, 6), (18, 10, 5), (22, 10, 4), (22, 10, 3), (22, 10, 2), (22, 10, 1), (22, 10, 0)]
    assert seen == [*before, (10, 0, 7), *after, (4, 0, 4)]


def test_it_probes_after_one_and_a_half_intervals_unless_told() -> None:
    assert Gradient().probe_countdown == 1500
    assert Gradient(probe_interval=None).probe_countdown is None


def ten() -> Vegas:
    """Ten calls, of which three to six may wait, and calls of 10 ms where none does."""
    law = Vegas(initial=10, maximum=20, alpha=3, beta=6)
    law.update(sample(10))
    return law


def test_without_an_own_measure_it_steps_by_the_logarithm() -> None:
    large = Vegas(initial=10_000, maximum=20_000)
    assert limits(large, [sample(10, 6000), sample(10, 6000), drop()]) == [10_000, 10_024, 10_020]
    # at 200, a logarithm of 2: up to 2 in the queue is none, below 6 few, 6 to 12 all right
    middling = [(10.1, 212), (10.15, 202), (10.2, 202), (10.25, 202), (10.3, 200), (10.6, 200), (10.7, 198)]
    for ms, limit in middling:
        assert limits(Vegas(initial=200), [sample(10), sample(ms)])[-1] == limit, ms


def test_it_probes_after_as_many_samples_as_told_whatever_the_load() -> None:
    jitters = iter([0.5, 0.75, 0.5])
    law = Vegas(initial=4, probe_multiplier=3, jitter=lambda: next(jitters))
    noload = []
    for ms in range(10, 27):
        law.update(sample(ms, in_flight=0))
        noload.append((law.rtt_noload_ns // MS, law.probe_count))
    # after 0.5 x 3 x 4 samples, and after 0.75 x 3 x 4 more
    first = [(10, count) for count in range(1, 6)]
    second = [(15, count) for count in range(9)]
    assert noload == [*first, *second, (24, 0), (24, 1), (24, 2)]


def test_it_probes_at_three_quarters_of_the_longest_way_unless_told() -> None:
    law = Vegas(initial=4)
    limits(law, [sample(10, in_flight=0)] * 89)
    assert law.probe_count == 89
    law.update(sample(10, in_flight=0))
    assert law.probe_count == 0


# The laws replay what the originals answered: every row, to the last bit


@cache
def _traces(file: str) -> dict[str, Trace]:
    return traces(GOLDEN / file)


@pytest.mark.parametrize(("file", "scenario"), golden())
def test_a_law_replays_its_original_row_for_row(file: str, scenario: str) -> None:
    trace = _traces(file)[scenario]
    assert left_the_track(trace, law_of(trace.algorithm, trace.config)) is None


def test_a_law_that_leaves_the_track_is_told_where() -> None:
    trace = _traces("aimd_default.json.gz")["steady"]
    rows = [list(row) for row in trace.rows]
    rows[7][4] += 1
    said = left_the_track(trace._replace(rows=rows), law_of(trace.algorithm, trace.config))
    assert said is not None
    assert said.startswith("row 7 ")
    assert "limit is" in said


@pytest.mark.parametrize(
    ("make", "limit", "shown"),
    [
        (ten, 9, "<Vegas 10.00: 10000000 ns at no load, 1 since the probe>"),
        (hundred, 90, "<Gradient 100.00: 10000000 ns at no load, None until the probe>"),
        (usual, 18, "<Gradient2 20.00: 10000000 ns on average>"),
    ],
)
def test_a_sample_without_a_duration_is_ignored_and_the_longest_counts(
    make: Callable[[], Vegas | Gradient | Gradient2], limit: int, shown: str
) -> None:
    def state() -> object:
        return repr(law), law.estimated_limit, getattr(law, "long_rtt_ns", None)

    law = make()
    before = state()
    for rtt_ns in (0, -1, 2**53 + 1):
        assert law.update(Sample(0, rtt_ns, 1000, True)) == law.limit
    assert state() == before
    assert repr(law) == shown
    assert law.update(Sample(0, 2**53, 1000)) == limit

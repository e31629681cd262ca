"""What holds of every law, whatever it is told."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.concurrency.law import Law, Sample
from batchlimit.concurrency.laws import (
    AIMD,
    Gitaly,
    Gradient,
    Gradient2,
    PercentileWindow,
    Periodic,
    Tumbling,
    Vegas,
    Watched,
    Windowed,
)
from tests.concurrency.laws.test_gradient import hundred
from tests.concurrency.laws.test_vegas import ten

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

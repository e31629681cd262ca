import pytest

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import AIMD
from tests.concurrency.laws.world import drop, limits, sample


@pytest.mark.parametrize(
    ("initial", "told", "limit"),
    [
        (20, sample(in_flight=10), 21),
        (20, sample(in_flight=9), 20),  # less than half was in use
        (21, sample(in_flight=10), 21),
        (21, sample(in_flight=11), 22),
        (30, drop(), 27),
        (29, drop(), 26),  # 26.1
        (30, sample(100), 31),  # just in time
        (30, Sample(0, 100_000_001, 1000), 27),
        (30, sample(100, in_flight=0), 30),
        (30, sample(101, in_flight=0), 27),
        (21, drop(), 20),  # 18 is below the minimum
        (200, sample(), 200),
        (10, sample(in_flight=0), 20),
        (300, sample(in_flight=0), 200),
        (300, drop(), 200),
    ],
)
def test_a_step_is_up_by_one_or_down_by_the_ratio(initial: int, told: Sample, limit: int) -> None:
    law = AIMD(initial=initial, timeout=0.1)
    assert law.limit == initial
    assert law.update(told) == limit
    assert law.limit == limit


def test_an_initial_out_of_bounds_stands_until_the_first_sample() -> None:
    assert AIMD(initial=10, timeout=5).limit == 10


def test_the_timeout_is_in_seconds() -> None:
    assert limits(AIMD(initial=100, timeout=5), [sample(5000), sample(5001)]) == [101, 90]


def test_the_default_timeout_is_a_second() -> None:
    assert limits(AIMD(initial=100), [sample(1000), sample(1001)]) == [101, 90]


def test_a_timeout_is_rounded_to_the_nearest_nanosecond() -> None:
    assert 1.001 * 1e9 < 1_001_000_000
    assert limits(AIMD(initial=100, timeout=1.001), [sample(1001)]) == [101]


def test_the_ratio_is_the_callers() -> None:
    assert limits(AIMD(initial=100, minimum=1, backoff_ratio=0.5, timeout=5), [drop(), drop(), drop()]) == [50, 25, 12]


def test_it_shows_its_limit_and_bounds() -> None:
    assert repr(AIMD(timeout=5)) == "<AIMD 20 of 20..200>"

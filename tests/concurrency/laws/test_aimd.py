from batchlimit.concurrency.laws import AIMD
from tests.concurrency.laws.world import limits, sample


def test_the_default_timeout_is_a_second() -> None:
    assert limits(AIMD(initial=100), [sample(1000), sample(1001)]) == [101, 90]


def test_a_timeout_is_rounded_to_the_nearest_nanosecond() -> None:
    assert 1.001 * 1e9 < 1_001_000_000
    assert limits(AIMD(initial=100, timeout=1.001), [sample(1001)]) == [101]


def test_it_shows_its_limit_and_bounds() -> None:
    assert repr(AIMD(timeout=5)) == "<AIMD 20 of 20..200>"

"""What small limits admit over several instances, beside one plain bucket."""

import pytest

from benchmarks.everyday import share


@pytest.mark.parametrize(("rate", "burst"), [("1/s", 1), ("10/s", 2), ("100/s", 2)])
@pytest.mark.parametrize(("instances", "demand"), [(1, 2), (8, 0.9), (8, 10)])
def test_a_small_limit_admits_what_a_plain_bucket_admits(rate: str, burst: int, instances: int, demand: float) -> None:
    part, excess = share(rate, burst, instances, demand)
    assert part >= 0.995
    assert excess == 0.0

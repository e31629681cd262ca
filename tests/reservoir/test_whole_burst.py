"""A process that is alone gets the whole burst, call by call, before it is refused for the first time."""

from random import Random

import pytest

from batchlimit.batching import TimeBatch
from batchlimit.quota.quota import Quota
from tests.reservoir.alone import Alone

_RATES = (1, 2, 3, 5, 7, 9, 10, 13, 20, 33, 50, 100, 1_000)


@pytest.mark.parametrize(
    "quota", [f"{rate}/s{burst}" for rate in _RATES for burst in ("", " burst 101", " burst 2000")]
)
@pytest.mark.parametrize("round_trip", [0.0, 0.001])
def test_a_lone_process_gets_the_whole_burst_before_the_first_refusal(quota: str, round_trip: float) -> None:
    alone = Alone(Quota.parse(quota), TimeBatch(), round_trip, Random(0))
    admitted = 0
    while alone.call(1) == 0.0:
        admitted += 1
        alone.pass_by(1e-6)
    assert admitted >= Quota.parse(quota).burst

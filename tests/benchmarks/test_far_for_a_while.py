"""The shares of callers while the store is far away, and after that."""

import pytest

from benchmarks.far_for_a_while import AGAIN, FAR, SETTLED, shares
from tests.servers import Server


def test_each_part_of_a_run_has_its_share(valkey: Server) -> None:
    def callers(_url: str, _quota: str, until: float) -> list[float]:
        far, again = until - AGAIN - FAR, until - AGAIN
        return [far - 1.0, far + 0.1, far + 0.2, far + 0.3, again + 0.1, *([again + SETTLED + 0.1] * 8)]

    found = shares(callers, valkey.url, "2/s", 0.03)
    assert found == pytest.approx((3 / (2 * FAR), 1 / (2 * SETTLED), 8 / (2 * (AGAIN - SETTLED))))

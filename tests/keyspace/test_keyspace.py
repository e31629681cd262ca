"""Which entry stands for a key."""

import pytest

from batchlimit import Quota, RateLimiter
from batchlimit.batching import FixedBatch
from tests.sync.stage import KEY, Clock, Stage

pytestmark = pytest.mark.usefixtures("without_refresher")
SLOW = Quota(0.001, 100)


def test_a_key_has_one_entry_until_that_has_retired() -> None:
    with RateLimiter(Stage(), SLOW, sizer=FixedBatch(50), clock=Clock()) as limiter:
        keyspace = limiter._registry._keyspace
        first = keyspace.find(KEY, SLOW)
        assert keyspace.find(KEY, SLOW) is first
        assert first.evict()
        second = keyspace.find(KEY, SLOW)
        assert second is not first
        assert keyspace.find(KEY, SLOW) is second


def test_an_entry_that_a_caller_needs_stays_and_another_one_goes() -> None:
    with RateLimiter(Stage(), SLOW, sizer=FixedBatch(50), clock=Clock()) as limiter:
        keyspace = limiter._registry._keyspace
        idle, needed = keyspace.find("idle", SLOW), keyspace.find("needed", SLOW)
        needed.reservoir.requests.refunds = 1
        assert [keyspace.evict(each) for each in (idle, needed)] == [True, False]
        assert list(limiter._entries) == ["needed"]

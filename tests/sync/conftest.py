"""A limiter whose time stands still."""

import pytest

from batchlimit import Quota, RateLimiter
from batchlimit.batching import FixedBatch
from tests.sync.stage import Clock, Stage


@pytest.fixture
def limiter(stage: Stage, clock: Clock, without_refresher: None) -> RateLimiter:
    """Ten tokens a key, and no more leased than callers ask for."""
    return RateLimiter(stage, Quota(0.001, 10), sizer=FixedBatch(1), clock=clock)

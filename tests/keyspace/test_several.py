"""What a caller of several keys does with what it holds."""

import pytest

from batchlimit import Quota, RateLimiter
from batchlimit.base.waiting import NO_WAIT
from batchlimit.batching import FixedBatch
from batchlimit.reservoir.waiter import Admit
from batchlimit.sync.acquire_all import AcquireAll
from tests.sync.stage import Clock, Stage


@pytest.mark.parametrize(("early", "late"), [("ann", "bob"), ("bob", "ann")])
def test_a_caller_waits_next_at_the_key_whose_tokens_have_expired_meanwhile(
    early: str, late: str, without_refresher: None
) -> None:
    clock = Clock()
    with RateLimiter(Stage(), Quota(0.001, 100), sizer=FixedBatch(1), clock=clock) as limiter:
        caller = AcquireAll({"ann": 1, "bob": 1}, limiter._registry)
        first = caller._hold(early, NO_WAIT).verdict
        assert isinstance(first, Admit)
        clock.now = first.before - 0.001
        caller._hold(late, NO_WAIT)
        clock.now = first.before
        assert caller._confirm() == early
        caller._leave()

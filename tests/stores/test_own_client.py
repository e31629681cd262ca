"""A client of the user's own that repeats what fails: a call ends by its deadline, and says what hides the reason."""

from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from batchlimit import AsyncRateLimiter, RateLimiter, StoreUnavailable
from tests.ports import free_port

LONG = ConstantBackoff(60)
HIDES = "did not answer in time .*; its client repeats calls that fail, which hides why"


@pytest.mark.parametrize(("retries", "told"), [(1, HIDES), (0, "Connection refused")])
def test_a_late_call_of_threads_says_that_the_client_repeats(retries: int, told: str) -> None:
    client = redis.Redis(port=free_port(), retry=Retry(LONG, retries))
    with (
        RateLimiter(client, "5/minute", deadline=0.02 if retries else 30.0) as limiter,
        pytest.raises(StoreUnavailable, match=told),
    ):
        _at_once(limiter).decide("ann")


@pytest.mark.parametrize(("retries", "told"), [(1, HIDES), (0, "Connect call failed")])
async def test_a_late_call_of_tasks_says_that_the_client_repeats(retries: int, told: str) -> None:
    client = redis.asyncio.Redis(port=free_port(), retry=AsyncRetry(LONG, retries))
    async with AsyncRateLimiter(client, "5/minute", deadline=0.02 if retries else 30.0) as limiter:
        with pytest.raises(StoreUnavailable, match=told):
            await _at_once(limiter).decide("ann")


def _at_once(limiter: Any) -> Any:
    """Let a client that repeats have no time to connect."""
    limiter._registry.store.allow(0.0)
    return limiter

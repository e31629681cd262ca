"""The asyncio limiter as a decorator: what it takes. See tests/apis."""

import inspect
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter
from tests.aio.stage import Stage, limiter_on


async def test_what_is_limited_is_a_coroutine_function_too() -> None:
    @limiter_on(Stage()).limit("k")
    async def search() -> None:
        """Find."""

    assert inspect.iscoroutinefunction(search)
    assert (search.__name__, search.__doc__) == ("search", "Find.")


@pytest.mark.parametrize("function", [len, lambda: None])
async def test_what_is_no_coroutine_function_is_named_at_once(function: Any) -> None:
    with pytest.raises(TypeError, match="an AsyncRateLimiter limits coroutine functions, not"):
        limiter_on(Stage()).limit("k")(function)


async def test_a_limit_may_be_made_before_there_is_a_loop() -> None:
    """Decorators run at import; the limiter is at home on the loop of the first call."""
    limiter = AsyncRateLimiter.from_url("memory://", "10/s")

    @limiter.limit("k")
    async def work() -> int:
        return 1

    assert await work() == 1
    await limiter.close()

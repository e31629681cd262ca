"""The asyncio limiter as a decorator of coroutine functions, and as a context manager."""

import inspect
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, RateLimited
from tests.aio.stage import Stage, limiter_on


async def remaining(limiter: AsyncRateLimiter, key: str) -> int:
    return (await limiter.peek(key)).remaining


async def test_each_call_is_charged_to_its_own_key() -> None:
    limiter = limiter_on(Stage())

    @limiter.limit("search:{user}", cost=3)
    async def search(user: str, *, page: int = 1) -> tuple[str, int]:
        """Find."""
        return user, page

    assert await search("ann") == ("ann", 1)
    assert await search(user="ann", page=2) == ("ann", 2)
    assert await search("bob") == ("bob", 1)
    assert [await remaining(limiter, f"search:{user}") for user in ("ann", "bob")] == [4, 7]
    assert inspect.iscoroutinefunction(search)
    assert (search.__name__, search.__doc__) == ("search", "Find.")


async def test_a_refused_call_does_not_happen() -> None:
    limiter = limiter_on(Stage())
    happened = []

    @limiter.limit("k", cost=lambda n: n, timeout=0)
    async def work(n: int) -> None:
        happened.append(n)

    await work(7)
    with pytest.raises(RateLimited):
        await work(4)
    await work(3)
    assert happened == [7, 3]


async def test_a_block_is_charged_each_time_it_is_entered() -> None:
    limiter = limiter_on(Stage())
    limit = limiter.limit("k", cost=4, timeout=0)
    for _ in range(2):
        async with limit:
            pass
    with pytest.raises(RateLimited):
        async with limit:
            pytest.fail("it was entered")


class Works:
    async def __call__(self) -> int:
        return 1


async def test_an_object_whose_call_is_awaited_is_a_coroutine_function() -> None:
    assert await limiter_on(Stage()).limit("k")(Works())() == 1


async def test_an_asynchronous_generator_is_named() -> None:
    with pytest.raises(TypeError, match="an asynchronous generator cannot be limited"):
        limiter_on(Stage()).limit("k")(_generates)


async def _generates() -> Any:
    yield 1


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


@pytest.mark.parametrize(
    ("key", "cost", "error"), [("{a}", 1, ValueError), (5, 1, TypeError), ("k", 1.5, TypeError), ("{}", 1, ValueError)]
)
async def test_what_makes_no_sense_is_said_before_any_call(key: Any, cost: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        async with limiter_on(Stage()).limit(key, cost=cost):
            pytest.fail("it was entered")

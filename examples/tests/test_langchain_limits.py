"""A model of LangChain waits for the fleet's tokens, by threads and by tasks."""

import asyncio

import pytest

from batchlimit import RateLimited
from batchlimit.testing import FrozenLimits

models = pytest.importorskip("langchain_core.language_models", reason="of the group 'agents'")


def test_a_model_is_asked_as_often_as_the_quota_lets(frozen_limits: FrozenLimits) -> None:
    from examples.langchain_limits import FleetRateLimiter

    limiter = FleetRateLimiter("model", "2/minute", timeout=0)
    model = models.FakeListChatModel(responses=["fine"], rate_limiter=limiter)
    assert [model.invoke("hello").content for _ in range(2)] == ["fine"] * 2
    with pytest.raises(RateLimited):
        model.invoke("hello")
    assert not limiter.acquire(blocking=False)
    frozen_limits.advance("30s")
    assert model.invoke("hello").content == "fine"


def test_so_it_is_in_tasks(frozen_limits: FrozenLimits) -> None:
    from examples.langchain_limits import FleetRateLimiter

    async def main() -> str:
        limiter = FleetRateLimiter("model", "1/minute", timeout=0)
        model = models.FakeListChatModel(responses=["fine"], rate_limiter=limiter)
        answer = await model.ainvoke("hello")
        with pytest.raises(RateLimited):
            await model.ainvoke("hello")
        assert not await limiter.aacquire(blocking=False)
        return str(answer.content)

    assert asyncio.run(main()) == "fine"

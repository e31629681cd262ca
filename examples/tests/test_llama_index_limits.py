"""An embedding of LlamaIndex waits for the fleet's requests and tokens, by threads and by tasks."""

import asyncio

import pytest

from batchlimit import RateLimited
from batchlimit.errors import Unfit
from batchlimit.testing import FrozenLimits

core = pytest.importorskip("llama_index.core", reason="of the group 'agents'")

QUOTAS = {"*:requests": "2/minute", "*:tokens": "1000/minute"}


@pytest.mark.usefixtures("frozen_limits")
def test_a_model_is_asked_as_often_as_the_quota_lets() -> None:
    from examples.llama_index_limits import FleetRateLimiter

    limiter = FleetRateLimiter("model", QUOTAS, timeout=0)
    model = core.MockEmbedding(embed_dim=3, rate_limiter=limiter)
    assert [len(model.get_text_embedding("hello")) for _ in range(2)] == [3, 3]
    with pytest.raises(RateLimited) as refused:
        model.get_text_embedding("hello")
    assert refused.value.key == "model:requests"


def test_tokens_count_and_more_than_ever_fit_is_said(frozen_limits: FrozenLimits) -> None:
    from examples.llama_index_limits import FleetRateLimiter

    async def main() -> None:
        limiter = FleetRateLimiter("model", QUOTAS, timeout=0)
        await limiter.async_acquire(800)
        with pytest.raises(RateLimited) as refused:
            await limiter.async_acquire(800)
        assert refused.value.key == "model:tokens"
        with pytest.raises(Unfit):
            await limiter.async_acquire(1001)
        frozen_limits.advance("1m")
        await limiter.async_acquire(800)

    asyncio.run(main())

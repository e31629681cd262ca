"""A client of the user's own: what it repeats, how it decodes, and what is no client."""

from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ConstantBackoff
from redis.cache import CacheConfig
from redis.connection import CacheProxyConnection
from redis.retry import Retry

from batchlimit import AsyncRateLimiter, RateLimiter, StoreUnavailable
from batchlimit.bucket.slot_table import SlotAsk
from batchlimit.quota.overrides.overrides import Change
from batchlimit.stores import RedisStore
from tests.nodes import node
from tests.ports import free_port
from tests.servers import Server, redis_binary

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


def test_a_push_is_understood_in_the_encoding_of_the_client(valkey: Server, prefix: str) -> None:
    with redis.Redis.from_url(valkey.url, encoding="latin-1", decode_responses=True) as client:
        slots, key = RedisStore(client, prefix=prefix).slots, "löwe 🦁"
        heard = slots.subscribe("b")
        heard.open()
        for instance, target, waiting, returned in (("a", 4, 0, 0), ("b", 1, 1, 0), ("a", 3, 0, 1)):
            slots.lend(key, SlotAsk(f"{instance}.1", 4, 60_000_000, target=target, waiting=waiting, returned=returned))
        push = heard.read(60)
        heard.close()
    assert push is not None
    assert push[0] == slots.name(key)


@pytest.mark.parametrize("decodes", [False, True])
def test_a_client_that_caches_replies_reads_what_is_set_now(decodes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CacheProxyConnection, "MIN_ALLOWED_VERSION", "7.0.0")  # in which it works, too
    with (
        node(redis_binary()) as one,
        redis.Redis(port=one.port, protocol=3, cache_config=CacheConfig(), decode_responses=decodes) as client,
        one.client() as other,
    ):
        rules, others = RedisStore(client).rules, RedisStore(other).rules
        for text in ("one", "two"):
            assert others.change(Change(rules.read(-1).revision, {"ann": text}))[0]
            assert (rules.read(-1).fields or {})["rule:ann"] == text
            assert [each.new for each in rules.log(1)] == [text]


@pytest.mark.parametrize(
    ("limiter", "client"), [(RateLimiter, redis.Redis()), (AsyncRateLimiter, redis.asyncio.Redis())]
)
def test_a_pipeline_is_no_client(limiter: Any, client: Any) -> None:
    """It is a subclass of its client's, and answers nothing until it is executed."""
    with pytest.raises(TypeError, match="Pipeline"):
        limiter(client.pipeline(), "5/minute")


def _at_once(limiter: Any) -> Any:
    """Let a client that repeats have no time to connect."""
    limiter._registry.store.allow(0.0)
    return limiter

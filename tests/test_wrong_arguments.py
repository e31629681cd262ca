"""A wrong argument is one clear error where it is given: it names the argument, and says what may be given."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import redis
from opentelemetry.sdk.metrics import MeterProvider

from batchlimit import ConcurrencyLimiter, FailurePolicy, Quota, RateLimiter
from batchlimit.concurrency import KeyedConcurrencyLimiter
from batchlimit.integrations.asgi import ConcurrencyLimit
from batchlimit.integrations.grpc import ConcurrencyClientInterceptor, ConcurrencyInterceptor, by_metadata
from batchlimit.integrations.httpx import AsyncLimitedTransport, LimitedTransport
from batchlimit.rules import Rule, Rules
from batchlimit.shared import SharedConcurrencyLimiter
from batchlimit.stores import AsyncRedisStore, MemoryStore, RedisStore
from batchlimit.telemetry import otel, prometheus

LIMITER: Any = RateLimiter(MemoryStore(), "5/s")
FIVE: Any = 5
TEXT: Any = "1"
CLIENT: Any = redis.Redis()
CALLS: Any = ConcurrencyLimiter()


async def wait(_: object) -> Any: ...


WAIT: Any = wait


RULE = Rule("all", "5/s", key="all:{ip}")

WRONG: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: Quota(5, also=FIVE), TypeError, "also must be several quotas, such as a list, not 5"),
    (lambda: Quota(5, also=[FIVE]), TypeError, "each of also must be a Quota, not 5"),
    (lambda: Quota.parse(FIVE), TypeError, "a quota must be a str like '100/s', not 5"),
    (lambda: Quota.decode(FIVE), TypeError, "an encoded quota must be a str, not 5"),
    (lambda: Quota(10**5000), ValueError, "a rate must be a finite number of at least 0, not about 10^5000"),
    (lambda: Quota.within(5, per=10**5000), ValueError, "a window lasts more than 0 seconds, and not for ever"),
    (lambda: FailurePolicy.parse(FIVE), TypeError, "the text of a failure policy must be a str like 'local:48', not 5"),
    (lambda: FailurePolicy.local(10**5000), ValueError, "instances must be from 1 to 2147483647, not about 10^5000"),
    (lambda: Rules([RULE], identities=FIVE), TypeError, "identities must be several names, such as a list, not 5"),
    (lambda: Rules([RULE], identities=[FIVE]), TypeError, "each of identities must be a str, not 5"),
    (lambda: Rules.loads(FIVE, format="toml"), TypeError, "the text of rules must be a str, not 5"),
    (lambda: Rules.loads("", format="toml", functions=FIVE), TypeError, "functions must be a dict from names"),
    (lambda: LimitedTransport(LIMITER, wait=-1), ValueError, "wait must be None or at least 0 seconds, not -1"),
    (lambda: LimitedTransport(LIMITER, wait=TEXT), TypeError, "wait must be None or a number of seconds, not '1'"),
    (lambda: LimitedTransport(LIMITER, unsaid=-1), ValueError, "unsaid must be at least 0 seconds, and finite, not -1"),
    (lambda: LimitedTransport(LIMITER, transport=FIVE), TypeError, "transport must be like HTTPTransport(), not 5"),
    (
        lambda: LimitedTransport(LIMITER, transport=httpx.AsyncHTTPTransport()),
        TypeError,
        "transport must be like HTTPTransport(), not <httpx.AsyncHTTPTransport object",
    ),
    (
        lambda: AsyncLimitedTransport(LIMITER, transport=httpx.HTTPTransport()),
        TypeError,
        "transport must be like AsyncHTTPTransport(), not <httpx.HTTPTransport object",
    ),
    (lambda: ConcurrencyLimiter(watchers=FIVE), TypeError, "watchers must be several watchers, such as a list, not 5"),
    (lambda: KeyedConcurrencyLimiter({"*": 5}, watchers=FIVE), TypeError, "watchers must be several watchers"),
    (
        lambda: SharedConcurrencyLimiter(CLIENT, {"*": 5}),
        TypeError,
        "store must be a RedisStore or a MemoryStore, not <redis.client.Redis",
    ),
    (lambda: SharedConcurrencyLimiter(CLIENT, {"*": 5}), TypeError, ": make a RedisStore(client) of it"),
    (lambda: prometheus.export(LIMITER, name=FIVE), TypeError, "name must be a str, not 5"),
    (lambda: prometheus.export(LIMITER, registry=FIVE), TypeError, "registry must be a CollectorRegistry, not 5"),
    (lambda: prometheus.export(LIMITER, every=-1), ValueError, "every (seconds) must be above 0"),
    (lambda: otel.export(LIMITER, name=FIVE, meter_provider=MeterProvider()), TypeError, "name must be a str, not 5"),
    (lambda: otel.export(LIMITER, meter_provider=FIVE), TypeError, "meter_provider must be a MeterProvider, not 5"),
    (lambda: RedisStore(FIVE), TypeError, "client must be a redis.Redis or redis.RedisCluster, not 5"),
    (lambda: AsyncRedisStore(CLIENT), TypeError, "client must be a redis.asyncio.Redis or redis.asyncio.RedisCluster"),
    (lambda: RateLimiter(MemoryStore(), "5/s", clock=FIVE), TypeError, "clock must be a function, not 5"),
    (lambda: ConcurrencyLimit(limiter=CALLS, outcome=FIVE), TypeError, "outcome must be a function, not 5"),
    (lambda: ConcurrencyLimit(limiter=CALLS, key=WAIT), TypeError, "key must be a function that is not asynchronous"),
    (lambda: ConcurrencyLimit(limiter=CALLS, timeout=-1), ValueError, "timeout must be None or at least 0 seconds"),
    (lambda: ConcurrencyInterceptor(CALLS, partition=FIVE), TypeError, "partition must be a function, not 5"),
    (
        lambda: ConcurrencyClientInterceptor(CALLS, wait=True, timeout=TEXT),
        TypeError,
        "timeout must be None or a number",
    ),
    (lambda: by_metadata(FIVE), TypeError, "key must be a str, not 5"),
    (
        lambda: RateLimiter.from_url("memory://", "5/s", deadline=50.0),
        ValueError,
        "deadline must be more than 0 seconds, and at most 30, not 50.0",
    ),
    (
        lambda: RateLimiter.from_url("memory://", "5/s", connect_timeout=50.0),
        ValueError,
        "connect_timeout must be more than 0 seconds, and at most 30, not 50.0",
    ),
]


@pytest.mark.parametrize(("make", "error", "told"), WRONG, ids=[told[:50] for _, _, told in WRONG])
def test_a_wrong_argument_is_named_with_what_may_be_given(
    make: Callable[[], Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error) as caught:
        make()
    assert told in str(caught.value)


@pytest.mark.parametrize("cost", [10**30, 10**5000, -(10**5000)], ids=["large", "huge", "negative"])
def test_a_message_tells_how_long_a_number_is_and_not_each_digit(cost: int) -> None:
    with pytest.raises(ValueError, match=r"about -?10\^(30|5000)") as caught:
        LIMITER.try_acquire("ann", cost)
    assert len(str(caught.value)) < 100


def test_a_message_cuts_what_is_long() -> None:
    with pytest.raises(TypeError) as caught:
        RateLimiter(MemoryStore(), ["100/s"] * 10_000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 1200

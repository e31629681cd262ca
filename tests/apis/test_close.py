"""A limiter that is closed while others call it: the calls end by that, and nobody says that the store is away."""

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from batchlimit import AsyncRateLimiter, LimiterClosed, Quota, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import Level
from batchlimit.stores import MemoryStore, Store
from tests.apis.blocking import Api, Awaited
from tests.nodes import await_fact
from tests.relay import Relay
from tests.servers import Server
from tests.sync.stage import KEY, Clock, Stage, away

HUNDRED = Quota(0.001, 100)

# A refund of what was not leased goes to the store.
CALLS = pytest.mark.parametrize("call", ["peek", "refund", "resume"])


@CALLS
def test_a_thread_that_asks_a_limiter_being_closed_is_told(valkey: Server, prefix: str, caplog: Any, call: str) -> None:
    ends: list[Exception] = []

    def ask(limiter: RateLimiter) -> None:
        try:
            getattr(limiter, call)("ann")
        except Exception as error:  # noqa: BLE001  whatever it is told
            ends.append(error)

    with Relay(valkey.url, 0.0) as relay:
        limiter: Any = RateLimiter.from_url(relay.url, "5/s", prefix=prefix, deadline=30.0)
        limiter.peek("ann")
        relay.drop()
        asking = threading.Thread(target=ask, args=(limiter,))
        asking.start()
        await_fact(lambda: not limiter._registry._opened._transport._idle, "an ask is under way")
        limiter.close()
        asking.join(100)
    assert [type(each) for each in ends] == [LimiterClosed]
    assert told_of(relay, caplog) == []


def told_of(relay: Relay, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of its server: limiters that other tests left open may tell of theirs at any time."""
    return [each for each in caplog.messages if urlsplit(relay.url).netloc in each]


@CALLS
async def test_a_task_that_asks_a_limiter_being_closed_is_told(
    valkey: Server, prefix: str, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    with Relay(valkey.url, 0.0) as relay:
        limiter = AsyncRateLimiter.from_url(relay.url, "5/s", prefix=prefix, deadline=30.0)
        await limiter.peek("ann")
        relay.drop()
        asking = asyncio.ensure_future(getattr(limiter, call)("ann"))
        await asyncio.sleep(0)
        await limiter.close()
        with pytest.raises(LimiterClosed):
            await asking
    assert told_of(relay, caplog) == []


def test_close_gives_all_tokens_back(api: Api, lasting_store: Store) -> None:
    with api(lasting_store, HUNDRED, sizer=FixedBatch(50)) as limiter:
        for i in range(10):
            limiter.acquire(f"key-{i}", i + 1)
    for i in range(10):
        assert Level(*lasting_store.peek(f"key-{i}", HUNDRED)[:3]) == Level(
            level=99 - i, outstanding=0, active_instances=0
        )


def test_close_may_be_called_again(api: Api, clock: Clock) -> None:
    stage = Stage(MemoryStore(clock))
    with api(stage, HUNDRED, sizer=FixedBatch(50), clock=clock) as limiter:
        limiter.acquire(KEY)
        limiter.close()
        limiter.close()
    assert len(stage.backs) == 1
    assert stage.peek(KEY, HUNDRED).level == 99


@pytest.mark.parametrize("used", [True, False])
def test_a_limiter_closes_the_store_that_it_opened_and_no_other(api: Api, used: bool, monkeypatch: Any) -> None:
    stage, own = Stage(), Stage()
    for kind in (RateLimiter, AsyncRateLimiter):
        monkeypatch.setattr(kind, "_open", lambda _url, **_: own if api is RateLimiter else Awaited(own))
    for limiter in (api(stage, HUNDRED), api(stage, HUNDRED), api.from_url("memory://", HUNDRED)):
        with limiter:
            assert not used or limiter.try_acquire(KEY)
    gc.collect()
    assert (stage.closed, own.closed > 0) == (0, True)


@pytest.mark.parametrize("key", ["used", "new"])
@pytest.mark.parametrize(
    "call",
    [
        lambda limiter, key: limiter.try_acquire(key),
        lambda limiter, key: limiter.try_acquire(key, 5),
        lambda limiter, key: limiter.acquire(key),
        lambda limiter, key: limiter.acquire(key, timeout=0),
        lambda limiter, key: limiter.decide(key),
        lambda limiter, key: limiter.peek(key),
        lambda limiter, key: limiter.refund(key),
        lambda limiter, key: limiter.pause(key, 1.0),
        lambda limiter, key: limiter.resume(key),
        lambda limiter, key: limiter.line_up(key, 1.0, 1.0),
        lambda limiter, key: limiter.acquire_all({key: 1}),
        lambda limiter, key: limiter.decide_all({key: 1, "b": 1}),
        lambda limiter, _key: limiter.decide_all({}),
    ],
)
def test_nothing_works_after_close(api: Api, call: Callable[[Any, str], object], key: str) -> None:
    limiter = api(MemoryStore(), HUNDRED)
    limiter.acquire("used")
    limiter.close()
    with pytest.raises(LimiterClosed, match="closed"):
        call(limiter, key)
    assert not limiter._registry._keyspace.spending._in_flight, "each of many keys would stay"


def test_close_ends_though_the_store_is_away_and_the_figures_are_whole(api: Api, clock: Clock) -> None:
    stage = Stage(MemoryStore(clock))
    limiter = api(stage, HUNDRED, sizer=FixedBatch(50), clock=clock)
    for i in range(5):
        limiter.acquire(f"key-{i}")

    stage.before_back = away
    limiter.close()
    assert (limiter.statistics().admitted, limiter.statistics().held) == (5, 0)

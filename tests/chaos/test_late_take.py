"""A take that reaches its server when nobody waits for the answer any more: it charges nothing."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from batchlimit import Quota, RateLimiter, StoreUnavailable
from batchlimit.bucket.messages import Ask, Spend
from batchlimit.stores.client.scripts import bucket_name, digest, take_arguments
from batchlimit.stores.redis import RedisStore
from tests.apis.blocking import Api, Blocking
from tests.relay import Relay
from tests.servers import Server
from tests.sync.stage import until

FIVE = Quota.per_minute(5)  # an instance spends what it is granted, and little is refilled meanwhile
PATIENCE = 30.0

pytestmark = pytest.mark.usefixtures("without_breaker")


@pytest.fixture
def relay(valkey: Server) -> Iterator[Relay]:
    with Relay(valkey.url, 0.0002) as relay:
        yield relay


def guard_of(limiter: Any) -> Any:
    return getattr(limiter, "_inner", limiter)._registry.store


def asked(client: Any) -> int:
    """How often the server has run a script."""
    return int(client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


@pytest.mark.parametrize("api", [RateLimiter, Blocking])
def test_a_take_that_the_network_held_up_charges_nothing(
    relay: Relay, valkey: Server, valkey_store: RedisStore, prefix: str, api: Api
) -> None:
    with api.from_url(relay.url, FIVE, prefix=prefix, deadline=PATIENCE) as limiter, valkey.client() as client:
        guard = guard_of(limiter)
        store = guard._store
        limiter.acquire("key", 0)  # in use: it asks by take
        limiter.try_acquire("other")  # a spend tells what the server's clock shows
        guard.deadline = store._within = 0.05
        relay.drop()
        with pytest.raises(StoreUnavailable):
            limiter.decide("key", 3)
        latest, before = int(store._clocks.latest("", 0.0)), asked(client)
        until(lambda: client.time()[0] * 1e6 + client.time()[1] > latest)
        relay.restore()
        until(lambda: asked(client) > before)
        assert valkey_store.peek("key", FIVE).level == 5
        guard.deadline = store._within = PATIENCE
        assert all(limiter.try_acquire("key") for _ in range(5))


@pytest.mark.parametrize("api", [RateLimiter, Blocking])
def test_who_was_wrong_about_the_clock_of_the_server_asks_again(valkey: Server, prefix: str, api: Api) -> None:
    with api.from_url(valkey.url, FIVE, prefix=prefix, deadline=PATIENCE) as limiter:
        store = guard_of(limiter)._store
        limiter.acquire("key", 0)
        store._clocks._ahead[""] = -1e15  # since then the server's clock was set to today
        assert all(limiter.try_acquire("key") for _ in range(5))
        assert store._clocks._ahead[""] > 0


@pytest.mark.parametrize("seen", [(), ("rules",)])
def test_a_late_take_leaves_no_bucket(valkey: Server, valkey_store: RedisStore, prefix: str, seen: list[str]) -> None:
    valkey_store.spend([[Spend("other", FIVE, 1)]])
    valkey_store.take("other", FIVE, Ask("a", 1, 1, 1, 1))  # the script is there
    with valkey.client(decode_responses=True) as client:
        name = bucket_name(prefix, "key")
        late = take_arguments(FIVE, Ask("a", 1, 1, 1, 1), seen, "1")
        seconds, _ = client.time()
        assert client.evalsha(digest("take"), 1, name, *late)[0] // 10**6 - seconds in (0, 1)
        assert not client.exists(name)
        timely = take_arguments(FIVE, Ask("a", 1, 1, 1, 1), seen, (seconds + 3600) * 1e6)
        granted, *_, revision, _ = client.evalsha(digest("take"), 1, name, *timely)
        assert (granted, revision) == (1, 0 if seen else -1)


@pytest.mark.parametrize("within", [-60.0, PATIENCE])
def test_several_takes_of_one_call_charge_nothing_either(valkey: Server, prefix: str, within: float) -> None:
    asks = [(key, FIVE, Ask("a", 1, 1, 1, 1)) for key in "abc"]
    with closing(RedisStore.from_url(valkey.url, prefix=prefix, deadline=PATIENCE)) as store:
        store.spend([[Spend("other", FIVE, 1)]])
        store._within, store._connect_timeout = within, 0.0
        if within > 0:  # they are in time, though not by what is known
            store._clocks._ahead[""] = -1e15
        outcomes = store.take_many(asks)
        assert [isinstance(each, StoreUnavailable) for each in outcomes] == [within < 0] * 3
        assert [store.peek(key, FIVE).level for key in "abc"] == [4 if within > 0 else 5] * 3

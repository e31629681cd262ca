"""Long keys: a process keeps what stands for them, and all works as with any other key."""

import sys
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any

import pytest

from batchlimit import RateLimited, RateLimiter
from batchlimit.admin import Admin
from batchlimit.base.key import LONGEST_KEY, place_of, stored
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.quota.quota import Quota
from batchlimit.shared import SharedConcurrencyLimiter, engine
from batchlimit.stores import MemoryStore
from tests.apis.blocking import Api
from tests.life.test_dormant_keys import come_to_rest, soon, supply_of
from tests.nodes import await_fact
from tests.servers import Server
from tests.sync.stage import Clock

__all__ = ["soon"]


def long_key(n: int) -> str:
    """They begin alike."""
    return "x" * 64_000 + str(n)


@pytest.mark.usefixtures("soon")
def test_a_process_keeps_no_long_key(api: Api, clock: Clock) -> None:
    keys = [long_key(n) for n in range(20)]
    before = [sys.getrefcount(key) for key in keys]
    with api(MemoryStore(clock), "1000/s burst 100", clock=clock, idle_after=1000.0) as limiter:
        for key in keys:
            assert limiter.try_acquire(key)
            limiter.acquire(key)
            limiter.refund(key)
            assert limiter.peek(key).remaining <= 99
        limiter.acquire_all(dict.fromkeys(keys[:3], 2))
        del key
        assert [sys.getrefcount(key) for key in keys] == before
        clock.pass_by(5.0)
        come_to_rest(limiter)
        assert limiter.statistics().keys == len(keys)
        assert [sys.getrefcount(key) for key in keys] == before


@pytest.mark.usefixtures("soon")
def test_each_long_key_has_its_own_tokens_active_and_after_being_dormant(api: Api, clock: Clock) -> None:
    keys = [long_key(1), long_key(2), stored(long_key(1))[:], "y" * (LONGEST_KEY + 1), "z" * LONGEST_KEY]
    with api(MemoryStore(clock), "100/s burst 10", clock=clock, sizer=FixedBatch(20), idle_after=1000.0) as limiter:
        for spent in range(2):
            for key in keys:
                assert sum(limiter.try_acquire(key) for _ in range(15)) == 10
                with pytest.raises(RateLimited) as refusal:
                    limiter.acquire(key, 5, timeout=0)
                assert refusal.value.key == key
            assert limiter.statistics().admitted == 10 * len(keys) * (spent + 1)
            clock.pass_by(5.0)
            come_to_rest(limiter)
        assert limiter.statistics().keys == len(keys)


def test_a_bucket_of_a_long_key_hits_as_any_other(api: Api, clock: Clock, without_refresher: None) -> None:
    with api(MemoryStore(clock), "100/s burst 10", clock=clock, sizer=FixedBatch(20)) as limiter:
        here: Any = getattr(limiter, "_inner", limiter)
        bucket = here.bucket(long_key(1))
        assert limiter.try_acquire(long_key(1))
        assert supply_of(limiter).entries.keys() == {bucket._place}


class Short(MemoryStore):
    """A store of a user's own that has room for the longest key that a limiter gives it."""

    is_prompt = False

    def __init__(self) -> None:
        super().__init__()
        self.parts = set[str]()

    def part(self, key: str) -> str:
        self.parts.add(self._short(key))
        return ""

    def probe(self, key: str) -> None:
        self._short(key)

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        return super().take(self._short(key), quota, ask)

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        return super().give_back(self._short(key), quota, back)

    def peek(self, key: str, quota: Quota) -> Level:
        return super().peek(self._short(key), quota)

    def reset(self, key: str, *, forget: bool) -> tuple[float, ...] | None:
        return super().reset(self._short(key), forget=forget)

    def _short(self, key: str) -> str:
        assert len(key.encode()) <= LONGEST_KEY
        return key


def test_a_store_is_given_no_long_key(api: Api) -> None:
    store = Short()
    with api(store, "0.001/s burst 10", sizer=FixedBatch(1)) as limiter:
        limiter.acquire(long_key(1), 4)
        limiter.acquire_all({long_key(1): 1, "short": 1})
        limiter.refund(long_key(1), 2)
        assert limiter.peek(long_key(1)).remaining == 7
        assert Admin(store).buckets.refill(long_key(1)) is not None
        assert limiter.peek(long_key(1)).remaining == 10


def test_several_long_keys_are_charged_together(api: Api) -> None:
    with api(MemoryStore(), "0.001/s burst 10", sizer=FixedBatch(1)) as limiter:
        limiter.acquire_all({long_key(1): 3, long_key(2): 4, "short": 5})
        assert [limiter.peek(key).remaining for key in (long_key(1), long_key(2), "short")] == [7, 6, 5]


def test_a_function_of_the_key_is_told_the_whole_key(api: Api) -> None:
    with api(MemoryStore(), lambda key: f"{len(key)}/s") as limiter:
        assert limiter.decide(long_key(1)).limit == len(long_key(1))


def test_the_bucket_of_a_long_key_is_the_one_that_it_was(api: Api, valkey: Server, prefix: str) -> None:
    with api.from_url(valkey.url, "0.001/s burst 10", prefix=prefix, deadline=30.0) as limiter:
        limiter.acquire(long_key(1), 4)
        limiter.close()
    with valkey.client() as client:
        (name,) = client.keys(f"*{prefix}*")
        assert stored(long_key(1)).encode() in name


def test_an_operator_finds_the_bucket_of_a_long_key(valkey: Server, prefix: str) -> None:
    key = "x" * (LONGEST_KEY + 1)
    with RateLimiter.from_url(valkey.url, "0.001/s burst 10", prefix=prefix, deadline=30.0) as limiter:
        limiter.acquire(key, 4)
        with Admin.from_url(valkey.url, prefix=prefix) as admin:
            assert admin.buckets.get(key) is not None
            assert [each.key for each in admin.plan(key, "1/h").touched] == [stored(key)]


class Tenant(str, Enum):  # noqa: UP042  the str() of a StrEnum is its value
    ACME = "acme"


@pytest.mark.parametrize("key", [long_key(1), Tenant.ACME], ids=["long", "enum"])
def test_a_release_wakes_a_waiter_at_any_key(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_LOOK", (3600.0, 3600.0))  # without its push a waiter stays
    store = Short()
    limiters = [SharedConcurrencyLimiter(store, {"*": 1}, deadline=30.0) for _ in range(2)]
    with limiters[0] as holder, limiters[1] as other, ThreadPoolExecutor(1) as pool:
        permit = holder.acquire(key, timeout=60.0)
        waiting = pool.submit(lambda: other.acquire(key, timeout=60.0).release())
        await_fact(lambda: other.statistics().asks >= 1, "the store knows that a caller waits")
        permit.release()
        waiting.result()
    assert store.parts == {stored(key)}


def test_where_a_long_key_stands_in_memory_no_other_key_can() -> None:
    place = place_of(stored(long_key(1)))
    assert type(place) is str
    with pytest.raises(UnicodeEncodeError):
        place.encode()
    assert place_of(stored("any other")) == "any other"
    assert place_of(stored(stored(long_key(1)))) == place
    assert place_of(stored(str.__str__(stored(long_key(1)))[:] + "")) != place

"""What lies in the store carries a format; whoever meets another one says which it is, and leaves all as it is."""

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from batchlimit import RateLimiter
from batchlimit.admin import Admin
from batchlimit.bucket.messages import Ask, GiveBack
from batchlimit.bucket.slot_table import SlotAsk
from batchlimit.bucket.state import FORMAT
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.overrides.overrides import Change
from batchlimit.quota.quota import Quota
from batchlimit.stores.base_redis import slots_name
from batchlimit.stores.client.rulebook import rules_name
from batchlimit.stores.client.scripts import bucket_name, script
from batchlimit.stores.redis import RedisStore
from tests.apis.blocking import Api, Blocking
from tests.servers import Server

LUA = Path(__file__).parents[2] / "lua"
HUNDRED = Quota(0.001, 100)
OTHER = "this {} is of format 9, and this release reads 1"


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with server.client(decode_responses=True) as client:
        yield client


@pytest.fixture
def later(client: Any, prefix: str) -> RedisStore:
    """A store that has a bucket and slots of a later format."""
    store = RedisStore(client, prefix=prefix)
    store.take("ann", HUNDRED, Ask("a", 1, need=10, queued=10, want=10))
    store.slots.lend("gpu", SlotAsk("a.1", 4, 60_000_000, target=2))
    client.hset(bucket_name(prefix, "ann"), "format", "9")
    client.hset(slots_name(prefix, "gpu"), "format", "9")
    return store


CALLS: dict[str, Callable[[RedisStore], object]] = {
    "take": lambda store: store.take("ann", HUNDRED, Ask("b", 1, need=1, queued=1, want=1)),
    "give_back": lambda store: store.give_back("ann", HUNDRED, GiveBack("a", 2, tokens=10)),
    "peek": lambda store: store.peek("ann", HUNDRED),
    "reset": lambda store: store.reset("ann", forget=True),
    "get": lambda store: Admin(store).buckets.get("ann"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_bucket_of_another_format_is_refused_by_name_and_stays(
    later: RedisStore, client: Any, prefix: str, call: str
) -> None:
    before = client.hgetall(bucket_name(prefix, "ann"))
    with pytest.raises(BucketUnavailable, match=OTHER.format("bucket")) as raised:
        CALLS[call](later)
    assert (raised.value.code, "see docs/upgrading.md" in str(raised.value)) == ("FORMAT", True)
    assert client.hgetall(bucket_name(prefix, "ann")) == before


def test_slots_of_another_format_are_refused_by_name_and_stay(later: RedisStore, client: Any, prefix: str) -> None:
    before = client.hgetall(slots_name(prefix, "gpu"))
    with pytest.raises(BucketUnavailable, match=OTHER.format("limit")) as raised:
        later.slots.lend("gpu", SlotAsk("b.1", 4, 60_000_000, target=2))
    assert raised.value.code == "FORMAT"
    assert client.hgetall(slots_name(prefix, "gpu")) == before


def test_overrides_of_another_format_are_refused_by_name_and_stay(later: RedisStore, client: Any, prefix: str) -> None:
    name, fields = rules_name(prefix), {"revision": "7", "form": "9"}
    client.hset(name, mapping=fields)
    with pytest.raises(BucketUnavailable, match="these overrides are of format 9, and this release reads 1"):
        later.rules.change(Change(7, {"ann": "one"}))
    with pytest.raises(ValueError, match="of format '9', and this release reads '1': see docs/upgrading"):
        Admin(later).overrides()
    assert client.hgetall(name) == fields


def test_what_has_no_format_is_of_format_1(later: RedisStore, client: Any, prefix: str) -> None:
    client.hdel(bucket_name(prefix, "ann"), "format")
    client.hdel(slots_name(prefix, "gpu"), "format")
    assert later.take("ann", HUNDRED, Ask("b", 1, need=1, queued=1, want=1)).granted == 1
    assert later.slots.lend("gpu", SlotAsk("b.1", 4, 60_000_000, target=2)).granted == 2


@pytest.mark.parametrize("make", [RateLimiter, Blocking])
def test_a_refusal_is_told_once_to_the_log(
    later: RedisStore, server: Server, prefix: str, caplog: pytest.LogCaptureFixture, make: Api
) -> None:
    limiter = make.from_url(server.url, HUNDRED, prefix=prefix, deadline=10.0)
    with caplog.at_level(logging.ERROR, "batchlimit"):
        assert [limiter.try_acquire("ann") for _ in range(9)] == [False] * 9
    assert limiter.try_acquire("bob"), "other keys are served"
    limiter.close()
    (record,) = caplog.records
    assert (vars(record)["batchlimit_event"], vars(record)["batchlimit_code"]) == ("key.unserved", "FORMAT")
    assert "this bucket is of format 9, and this release reads 1 (another release" in record.getMessage()


def test_each_format_is_one_number_in_one_place() -> None:
    said = {path.stem: re.findall(r"^local FORMAT = '(\d+)'", path.read_text(), re.MULTILINE) for path in LUA.iterdir()}
    assert {name: numbers for name, numbers in said.items() if numbers} == {"start": [FORMAT], "lend": ["1"]}
    assert all(
        script(name).count("local FORMAT") == 1 for name in ("take", "spend", "give_back", "peek", "reset", "lend")
    )

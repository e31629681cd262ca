"""Strangers choose keys: each key is a bucket of its own, and nothing else in the server changes."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from batchlimit import Quota, StoreUnavailable
from batchlimit.bucket.messages import Ask, GiveBack
from batchlimit.stores import RedisStore
from batchlimit.stores.client.scripts import bucket_name, script
from tests.apis.blocking import Api
from tests.depth import depth
from tests.servers import Server

HUNDRED = Quota(0.001, 100)
TEN = Ask("instance", 1, need=10, queued=10, want=10, round_trip=2.0)

NASTY = [
    "a\nb", "a\r\nFLUSHALL\r\n", "a\0b", "\0", "}", "{", "{}", "a}b{c", "}{", "a:b", ":", "::", " ", "\t",
    "'; redis.call('FLUSHALL') --", "]] redis.call('FLUSHALL')", "${x}", "%s%n", "*", "?", "[a]", "h:host", "config",
    "é", "e\u0301", "É", "ﬁ", "fi", "K", "\u212a", "A", "a", "\ufeffa", "a\u200b", "\u202ea", "a" * 256, "a" * 257,
    "😀" * 65, "a" * 64 + "#" + "0" * 32, "x" * 64 + "#c2f093e41879e412280bfcc0ed6533e4", "x" * 300,
]  # fmt: skip

keys = st.one_of(
    st.sampled_from(NASTY),
    st.text(min_size=1),
    st.text("{}:#\n\0 a", min_size=1, max_size=12),
    st.text("aé😀}", min_size=60, max_size=300),
)
"""UTF-8 has no surrogates: what holds one is no key, see tests/quota/test_key.py."""


@pytest.fixture
def client(private: Server) -> Iterator[redis.Redis]:
    """Of a server in which nothing else happens; with something of everyone's in it."""
    with private.client() as found:
        found.set("theirs", "untouched")
        found.set("{life:theirs", "untouched")
        yield found


def everything(client: Any) -> dict[bytes, bytes | None]:
    """All that is there, and what is in it."""
    return {name: client.dump(name) for name in client.scan_iter(count=1000)}


@settings(max_examples=depth(37, 150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(keys, min_size=2, max_size=4, unique=True))
@example(["é", "e\u0301"])
@example(["A", "a"])
@example(["x" * 300, "x" * 64 + "#c2f093e41879e412280bfcc0ed6533e4"])
def test_each_key_is_a_bucket_of_its_own_and_touches_nothing_else(client: Any, names: list[str]) -> None:
    store = RedisStore(client, prefix="life")
    seen = before = everything(client)
    for number, key in enumerate(names, 1):
        assert store.take(key, HUNDRED, TEN).granted == 10
        store.peek(key, HUNDRED)
        store.give_back(key, HUNDRED, GiveBack("instance", 2, tokens=1, held=9))
        now = everything(client)
        (new,) = now.keys() - seen.keys()
        assert new.startswith(b"{life:")
        assert new.endswith(b"}")
        assert len(now) == len(before) + number
        assert all(now[name] == seen[name] for name in seen)
        seen = now
    client.delete(*(seen.keys() - before.keys()))


@pytest.mark.parametrize("names", [("A", "a"), ("é", "e\u0301"), ("ﬁ", "fi"), ("K", "\u212a")])
def test_keys_that_only_look_alike_are_different_keys(client: Any, names: tuple[str, str]) -> None:
    """A user who wants one bucket for them normalizes the key: `unicodedata.normalize`, `casefold`."""
    fold = {unicodedata.normalize("NFKC", name).casefold() for name in names}
    assert len(fold) == 1
    store = RedisStore(client, prefix="life")
    for number, name in enumerate(names, 1):
        assert store.take(name, HUNDRED, Ask("instance", number, need=10, queued=10, want=10)).level == 90


def test_prefixes_that_continue_each_other_may_meet() -> None:
    """Documented, for prefixes are the programmer's: none should continue another one after a colon."""
    assert bucket_name("a", "b:c") == bucket_name("a:b", "c")
    assert bucket_name("a", "b") != bucket_name("b", "b")


@settings(max_examples=depth(25, 50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.sampled_from(NASTY), st.text()))
def test_names_of_instances_are_data_too(client: Any, instance: str) -> None:
    before = everything(client)
    store = RedisStore(client, prefix="life")
    ask = Ask(instance, 1, need=10, queued=10, want=10, round_trip=2.0)
    assert store.take("key", HUNDRED, ask).granted == 10
    assert store.take("key", HUNDRED, ask).granted == 10, "the same ask again"
    assert store.peek("key", HUNDRED).outstanding == 10
    client.delete(bucket_name("life", "key"))
    assert everything(client) == before


def test_what_one_invented_key_costs_the_server_is_bounded(client: Any, api: Api) -> None:
    """Bytes, and for how long: what docs/security.md says. A bucket goes when it would be full again, and 5 to 7 s."""
    with api(RedisStore(client, prefix="life"), "100/s burst 200") as limiter:
        for key in ("user:12345678", "x" * 256, "y" * 100_000):
            assert limiter.try_acquire(key)
    for name in client.scan_iter("{life:[uxy]*"):
        assert 0 < client.pttl(name) <= 7000
        assert (client.memory_usage(name) or 0) <= 1200


def test_a_script_has_no_text_of_the_callers(client: Any, api: Api) -> None:
    """The server knows three scripts, whatever the keys: all else travels as arguments."""
    quotas = {"a*": "100/s burst 200", "'; FLUSHALL --*": "5/s; 100/day", "*": "7/s"}
    with api(RedisStore(client, prefix="life"), quotas) as limiter:
        for key in NASTY:
            assert limiter.try_acquire(key)
            limiter.peek(key)
    assert client.info("memory")["number_of_cached_scripts"] <= 3
    assert client.get("theirs") == b"untouched"


def test_a_user_of_the_server_that_may_do_little_is_enough(client: Any, private: Server, api: Api) -> None:
    """And it cannot leave its prefix: the rules that docs/security.md names."""
    commands = "+@connection +evalsha +script|load +time +hmget +hget +hgetall +hset +hdel +pexpire"
    rules = ("on", ">pw", "~{life:*", *commands.split())
    client.execute_command("ACL", "SETUSER", "ours", *rules)
    url = f"{private.url}?username=ours&password=pw"
    with api.from_url(url, "5/s; 100/day", prefix="life") as limiter:
        limiter.acquire("key", 3)
        limiter.peek("key")
        limiter.refund("key", 3)
    with api.from_url(url, "5/s", prefix="other") as limiter, pytest.raises(StoreUnavailable, match="No permissions"):
        limiter.decide("key")


@pytest.mark.parametrize("name", ["take", "give_back", "peek"])
def test_a_script_calls_by_name_what_it_calls(name: str) -> None:
    """Nor does it load any text."""
    text = script(name)
    assert set(re.findall(r"\bp?call\((.*?)[,)]", text)) <= {
        f"'{each}'" for each in ("TIME", "HMGET", "HGET", "HGETALL", "HSET", "HDEL", "PEXPIRE")
    }
    assert not re.search(r"\b(loadstring|load|dofile|setfenv)\b\s*\(", text)

"""What goes in: every kind of wrong argument is named at once, and every odd but right one works."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.sentinel

from batchlimit import AsyncRateLimiter, Quota, RateLimited, RateLimiter, StoreUnavailable
from batchlimit.base.key import LONGEST_KEY, stored
from batchlimit.batching import FixedBatch
from batchlimit.stores import AsyncRedisStore, MemoryStore, RedisStore
from batchlimit.stores.client.scripts import bucket_name
from tests.apis.blocking import Api, Blocking
from tests.depth import depth
from tests.servers import Server
from tests.sync.stage import DEADLINE, KEY, Clock, Stage, quiet, start, until

TEN = Quota(0.001, 10)

Limiter = RateLimiter | Blocking
Call = Callable[[Limiter, Any, Any], object]

CALLS: dict[str, Call] = {
    "try_acquire": lambda limiter, key, cost: limiter.try_acquire(key, cost),
    "acquire": lambda limiter, key, cost: limiter.acquire(key, cost),
    "acquire now": lambda limiter, key, cost: limiter.acquire(key, cost, timeout=0),
    "decide": lambda limiter, key, cost: limiter.decide(key, cost),
    "refund": lambda limiter, key, cost: limiter.refund(key, cost),
}
ADMITTED: dict[str, Callable[[Limiter, str, int], bool]] = {
    "try_acquire": lambda limiter, key, cost: limiter.try_acquire(key, cost),
    "acquire": lambda limiter, key, cost: _acquired(limiter, key, cost, None),
    "acquire now": lambda limiter, key, cost: _acquired(limiter, key, cost, 0),
    "acquire soon": lambda limiter, key, cost: _acquired(limiter, key, cost, 1.0),
    "decide": lambda limiter, key, cost: limiter.decide(key, cost).allowed,
}


def _acquired(limiter: Limiter, key: str, cost: int, timeout: float | None) -> bool:
    try:
        limiter.acquire(key, cost, timeout=timeout)
    except RateLimited:
        return False
    return True


def _cold(api: Api, clock: Clock) -> Limiter:
    return api(Stage(MemoryStore(clock)), TEN, sizer=FixedBatch(5), clock=clock)


def _warm(api: Api, clock: Clock) -> Limiter:
    limiter = _cold(api, clock)
    limiter.acquire(KEY)
    return limiter


def _dry(api: Api, clock: Clock) -> Limiter:
    limiter = _cold(api, clock)
    limiter.acquire(KEY, 10)
    assert not limiter.try_acquire(KEY)
    return limiter


def _expired(api: Api, clock: Clock) -> Limiter:
    limiter = _warm(api, clock)
    clock.now += 100.0
    return limiter


def _zero(api: Api, clock: Clock) -> Limiter:
    return api(Stage(MemoryStore(clock)), "0/s", clock=clock)


STATES = {"cold": _cold, "warm": _warm, "dry": _dry, "expired": _expired}


@pytest.fixture(params=STATES)
def limiter(request: pytest.FixtureRequest, api: Api, without_refresher: None) -> Limiter:
    """A limiter in each state of its key; time stands still, and who spins on the clock is found out."""
    return STATES[request.param](api, Clock(reads=10_000))


IN_TWO_STATES = pytest.mark.parametrize("limiter", depth(["cold", "dry"], list(STATES)), indirect=True)
"""What is wrong is found before the state of a key counts."""


@IN_TWO_STATES
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("cost", "error", "message"),
    [
        (-1, ValueError, "cost must be at least 0 tokens, not -1"),
        (-(10**30), ValueError, "cost must be at least 0 tokens"),
        (11, ValueError, "11 tokens never fit a burst of 10: key 'tenant:42'"),
        (2**63, ValueError, "never fit a burst of 10"),
        (10**30, ValueError, "never fit a burst of 10"),
        (1.5, TypeError, "cost must be a whole number of tokens, not 1.5"),
        (1.0, TypeError, "cost must be a whole number of tokens, not 1.0"),
        (math.nan, TypeError, "cost must be a whole number of tokens, not nan"),
        (math.inf, TypeError, "cost must be a whole number of tokens, not inf"),
        (True, TypeError, "cost must be a whole number of tokens, not True"),
        (False, TypeError, "cost must be a whole number of tokens, not False"),
        ("3", TypeError, "cost must be a whole number of tokens, not '3'"),
        (None, TypeError, "cost must be a whole number of tokens, not None"),
        (b"3", TypeError, "cost must be a whole number of tokens, not b'3'"),
    ],
)
def test_a_wrong_cost_is_an_error_at_once(limiter: Limiter, call: Call, cost: object, error: Any, message: str) -> None:
    before = limiter.statistics()
    with pytest.raises(error, match=message):
        call(limiter, KEY, cost)
    after = limiter.statistics()
    assert (before.admitted, before.refused, before.calls) == (after.admitted, after.refused, after.calls)


@pytest.mark.parametrize("call", ADMITTED.values(), ids=ADMITTED)
def test_a_cost_of_zero_is_admitted_and_spends_nothing(limiter: Limiter, call: Any) -> None:
    before = limiter.statistics().admitted
    assert call(limiter, KEY, 0)
    assert limiter.statistics().admitted == before
    assert limiter.statistics().waiting == 0


@pytest.mark.parametrize("call", ADMITTED.values(), ids=ADMITTED)
def test_a_cost_of_zero_is_admitted_whatever_the_rate(api: Api, without_refresher: None, call: Any) -> None:
    assert call(_zero(api, Clock(reads=10_000)), KEY, 0)


@pytest.mark.parametrize("quota", ["5/minute", "5/minute; 100/day"])
def test_a_cost_of_zero_tells_of_a_full_bucket_where_nothing_is_known(api: Api, clock: Clock, quota: str) -> None:
    limiter = api(Stage(MemoryStore(clock)), quota, clock=clock)
    told = limiter.decide(KEY, 0)
    assert (told.limit, told.remaining, told.reset_after) == (5, 5, 0.0)
    together = limiter.decide_all({KEY: 0, "other": 1})
    assert {key: each.remaining for key, each in together.items()} == {KEY: 5, "other": 4}
    assert limiter.decide(KEY).remaining == 4
    assert limiter.decide(KEY, 0).remaining == 4
    assert _zero(api, clock).decide(KEY, 0).reset_after == math.inf, "at a rate of 0 none is ever full"


def test_a_cost_of_zero_is_told_of_no_full_bucket_while_tokens_are_owed(api: Api, clock: Clock) -> None:
    limiter = api(Stage(MemoryStore(clock)), "5/minute", clock=clock)
    limiter.reserve(KEY, 0).settle(3)
    assert limiter.decide(KEY, 0).remaining <= 2


def test_a_cost_of_zero_does_not_stand_in_line(api: Api, clock: Clock, without_refresher: None) -> None:
    limiter = _dry(api, clock)
    waiter = start(lambda: limiter.acquire(KEY))
    until(lambda: limiter.statistics().waiting == 1 and quiet(limiter))
    assert limiter.try_acquire(KEY, 0)
    assert limiter.decide(KEY, 0)
    limiter.acquire(KEY, 0, timeout=0)
    limiter.refund(KEY)
    waiter.result(DEADLINE)


def test_a_refund_of_zero_changes_nothing(limiter: Limiter) -> None:
    before = limiter.peek(KEY)
    limiter.refund(KEY, 0)
    assert limiter.peek(KEY) == before


@pytest.mark.parametrize("call", ADMITTED.values(), ids=ADMITTED)
def test_the_whole_burst_fits_at_once(api: Api, without_refresher: None, call: Any, clock: Clock) -> None:
    assert call(_cold(api, clock), KEY, 10)


@pytest.mark.usefixtures("far_away")
def test_a_huge_burst_is_spent_to_the_last_token(api: Api, valkey_store: RedisStore) -> None:
    largest = 2**50
    with api(valkey_store, Quota(1e-6, largest)) as limiter:
        limiter.acquire(KEY, largest - 1, timeout=0)
        limiter.acquire(KEY, timeout=0)
        assert not limiter.try_acquire(KEY)
        assert limiter.statistics().admitted == largest


@IN_TWO_STATES
@pytest.mark.parametrize("call", [*CALLS.values(), lambda limiter, key, _cost: limiter.peek(key)], ids=[*CALLS, "peek"])
@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ("", ValueError, "a key must not be empty"),
        ("a\ud800", ValueError, "a key must be encodable as UTF-8"),
        (b"a", TypeError, "a key must be a str, not b'a'; decode it first"),
        (bytearray(b"a"), TypeError, "decode it first"),
        (None, TypeError, "a key must be a str, not None"),
        (42, TypeError, "a key must be a str, not 42"),
        (["a"], TypeError, "a key must be a str, not \\['a'\\]"),
        ({}, TypeError, "a key must be a str, not {}"),
        (("a", 1), TypeError, "a key must be a str, not \\('a', 1\\)"),
    ],
)
def test_a_wrong_key_is_an_error_at_once(limiter: Limiter, call: Call, key: object, error: Any, message: str) -> None:
    keys = limiter.statistics().keys
    with pytest.raises(error, match=message):
        call(limiter, key, 1)
    assert limiter.statistics().keys == keys


ODD_KEYS = {
    "space": " ",
    "unicode": "münchen/東京/🚦",
    "zero byte": "a\0b",
    "lines": "a\r\nb",
    "braces": "{a}{b}",
    "ten kilobytes": "x" * 10_000,
    "ten kilobytes of emoji": "🚦" * 2_500,
}


@pytest.mark.parametrize("key", ODD_KEYS.values(), ids=ODD_KEYS)
@pytest.mark.usefixtures("far_away")
def test_an_odd_key_is_a_key_like_any_other(api: Api, valkey: Server, prefix: str, key: str) -> None:
    with api.from_url(valkey.url, TEN, prefix=prefix, connect_timeout=30.0, deadline=30.0) as limiter:
        assert [limiter.try_acquire(key) for _ in range(11)] == [True] * 10 + [False]
        assert limiter.try_acquire(key + "y")
        assert not limiter.peek(key)
    with valkey.client() as client:
        name = bucket_name(prefix, stored(key))
        assert client.exists(name)
        assert len(name) <= LONGEST_KEY + len(prefix) + 3


@IN_TWO_STATES
@pytest.mark.parametrize("timeout", [-1, -0.001, -math.inf, math.nan])
@pytest.mark.parametrize("cost", [0, 1, 10])
def test_a_wrong_timeout_is_an_error_at_once(limiter: Limiter, timeout: float, cost: int) -> None:
    before = limiter.statistics()
    with pytest.raises(ValueError, match="timeout must be None or at least 0 seconds, not"):
        limiter.acquire(KEY, cost, timeout=timeout)
    assert limiter.statistics() == before


@pytest.mark.parametrize("given", [{"timeout": "1"}, {"timeout": []}, {"timeout": b"1"}, 2.0])
def test_a_timeout_that_is_no_number_or_without_its_name_is_an_error_at_once(limiter: Limiter, given: Any) -> None:
    acquire: Any = limiter.acquire
    with pytest.raises(TypeError):
        acquire(KEY, **given) if isinstance(given, dict) else acquire(KEY, 1, given)


@pytest.mark.parametrize("quota", ["0/s", "0 per hour", Quota(0), "100/s; 0/s", "0/s; 100/s"])
def test_a_rate_of_zero_refuses_everything(api: Api, clock: Clock, without_refresher: None, quota: Quota | str) -> None:
    stage = Stage(MemoryStore(clock))
    limiter = api(stage, quota, clock=clock)
    for _ in range(2):
        assert not limiter.try_acquire(KEY)
        assert not limiter.try_acquire(KEY, 1000)
        for decision in (limiter.decide(KEY), limiter.peek(KEY)):
            assert (decision.allowed, decision.limit, decision.remaining) == (False, 0, 0)
            assert (decision.retry_after, decision.reset_after) == (math.inf, math.inf)
        for timeout in (None, 0, 1.0, 1e10, math.inf):
            with pytest.raises(RateLimited) as caught:
                limiter.acquire(KEY, timeout=timeout)
            assert str(caught.value) == "'tenant:42' is over its quota; no later call will fit"
            assert caught.value.retry_after == math.inf
        limiter.refund(KEY, 10)
        clock.now += 1e6
    assert limiter.statistics().admitted == 0
    assert (stage.asks, stage.backs) == ([], [])
    limiter.close()


def test_a_key_without_a_quota_is_named(api: Api, clock: Clock) -> None:
    limiter = api(MemoryStore(clock), {"a": "1/s", "b:*": "2/s"}, clock=clock)
    for call in CALLS.values():
        with pytest.raises(ValueError, match=r"no quota for key 'c'; add a \"\*\" entry"):
            call(limiter, "c", 1)
    assert limiter.statistics().keys == 0
    limiter.acquire("a")
    limiter.acquire("b:1")


@pytest.mark.parametrize(
    ("quota", "error", "message"),
    [
        ("100/x", ValueError, r"^quota '100/x': expected a unit \(s, m, h, d or w\) at column 5: 'x'"),
        ("", ValueError, "expected an amount of tokens at column 1: the end"),
        ("1/s burst", ValueError, "expected a burst from 1 to"),
        ({"a": "1/s", "b": "2 / "}, ValueError, r"^quota '2 / ': expected a unit .*: the end \(the quota of 'b'\)$"),
        ({}, ValueError, "needs an entry"),
        ({b"a": "1/s"}, TypeError, "names of type str, not b'a'"),
        ({"a": 100}, TypeError, "the quota of 'a' must be a Quota or its text, not 100"),
        (100, TypeError, "not from 100$"),
        (
            ["100/s", "1000/h"],
            TypeError,
            r"not from \['100/s', '1000/h'\]: join several by ';' in one text, .* by '&'$",
        ),
        ({"a": ("1/s", "2/s")}, TypeError, r"of 'a' must be .*, not \('1/s', '2/s'\): join several by ';' .* by '&'$"),
        (None, TypeError, "not from None"),
    ],
)
def test_a_wrong_quota_fails_at_the_start_and_says_where(api: Api, quota: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        api(MemoryStore(), quota)
    with pytest.raises(error, match=message):
        api.from_url("embedded://", quota)


@pytest.mark.parametrize(
    ("found", "error", "message"),
    [
        ("100", ValueError, r"^quota '100': expected .*: the end \(the quota of key 'tenant:42'\)$"),
        (None, TypeError, "the quota of key 'tenant:42' must be a Quota or its text, not None"),
        (5, TypeError, "not 5"),
    ],
)
def test_a_function_that_finds_no_quota_is_an_error_of_the_call(api: Api, found: Any, error: Any, message: str) -> None:
    with api(MemoryStore(), lambda _key: found) as limiter, pytest.raises(error, match=message):
        limiter.try_acquire(KEY)


def test_an_error_of_the_function_is_the_callers(api: Api) -> None:
    def lookup(key: str) -> Quota:
        raise LookupError(key)

    with api(MemoryStore(), lookup) as limiter:
        for call in CALLS.values():
            with pytest.raises(LookupError, match=KEY):
                call(limiter, KEY, 1)
        assert limiter.statistics().keys == 0


@pytest.mark.parametrize("store", [None, "redis://localhost", object()])
def test_a_wrong_store_is_an_error_at_once(api: Api, store: Any) -> None:
    with pytest.raises(TypeError, match=r"RateLimiter needs a redis\.\S+ client or an? \w*Store, not"):
        api(store, "1/s")


@pytest.mark.parametrize(
    ("api", "store", "said"),
    [
        (RateLimiter, redis.asyncio.Redis(), "this Redis is for asyncio, and a RateLimiter .*: use AsyncRateLimiter$"),
        (RateLimiter, redis.asyncio.RedisCluster("h"), "this RedisCluster is for asyncio.*: use AsyncRateLimiter$"),
        (RateLimiter, AsyncRedisStore(redis.asyncio.Redis()), "this AsyncRedisStore is .*: use AsyncRateLimiter$"),
        (AsyncRateLimiter, redis.Redis(), "this Redis is for threads, .*: use RateLimiter, or redis.asyncio$"),
        (AsyncRateLimiter, redis.sentinel.SentinelConnectionPool, "needs a redis.asyncio.Redis client"),
        (AsyncRateLimiter, RedisStore(redis.Redis()), "this RedisStore is .*: use RateLimiter, or redis.asyncio$"),
        (RateLimiter, "redis://:secret@h", "needs a redis.Redis client or a Store, not a str; a URL goes to from_url$"),
        (AsyncRateLimiter, "redis://:secret@h", "or an AsyncStore, not a str; a URL goes to from_url$"),
    ],
)
def test_a_store_of_the_other_api_is_named(api: Any | type[AsyncRateLimiter], store: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said) as caught:
        api(store, "1/s")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", [None, b"redis://localhost", 6379])
def test_a_url_is_a_str(api: Api, url: Any) -> None:
    with pytest.raises(TypeError, match="must be a str, not"):
        api.from_url(url, "1/s")


@pytest.mark.parametrize("url", ["redis://localhost", "memory://"])
@pytest.mark.parametrize("prefix", ["", "a b", "{a}"])
def test_a_wrong_prefix_is_an_error_at_once(api: Api, prefix: str, url: str) -> None:
    with pytest.raises(ValueError, match="a prefix must be"):
        api.from_url(url, "1/s", prefix=prefix)


def test_a_server_that_is_no_redis_is_unavailable(api: Api, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("nobody") / "s"
    with api.from_url(f"unix://{path}", "1/s") as limiter, pytest.raises(StoreUnavailable, match=str(path)):
        limiter.decide(KEY)


@pytest.mark.parametrize(
    ("option", "kind", "said"),
    [
        ({"fill": "foo"}, ValueError, "'foo'"),
        ({"idle_after": -1}, ValueError, "-1"),
        ({"idle_after": float("nan")}, ValueError, "nan"),
        ({"idle_after": "x"}, TypeError, "'x'"),
        ({"idle_after": True}, TypeError, "True"),
        ({"idle_after": -0.5}, ValueError, "idle_after must be at least 0 seconds, not -0.5"),
        *(({"max_keys": wrong}, ValueError, f"max_keys must be at least 1, not {wrong}") for wrong in (0, -1)),
        *(({"max_keys": wrong}, TypeError, "max_keys must be a whole number, not") for wrong in (1.0, 1.5, True)),
        *(({"revision": wrong}, ValueError, "revision must be from 0") for wrong in (-1, 2**53)),
        *(({"revision": wrong}, TypeError, "revision must be a whole number, not") for wrong in (0.5, True)),
        ({"mode": "off"}, ValueError, "mode"),
        ({"sizer": None}, TypeError, "None"),
        ({"weight": 0}, ValueError, "0"),
        ({"weight": 101}, ValueError, "101"),
        ({"weight": 1.5}, TypeError, "1.5"),
        ({"weight": True}, TypeError, "True"),
        ({"deadline": 0}, ValueError, "more than 0 seconds"),
        ({"deadline": -1.0}, ValueError, "more than 0 seconds"),
        ({"deadline": float("nan")}, ValueError, "more than 0 seconds"),
        ({"deadline": float("inf")}, ValueError, "at most 30"),
        ({"deadline": True}, TypeError, "a number of seconds"),
        ({"deadline": "1"}, TypeError, "a number of seconds"),
        ({"deadline": None}, TypeError, "a number of seconds"),
        ({"connect_timeout": 0}, ValueError, "connect_timeout must be more than 0 seconds"),
        ({"connect_timeout": float("inf")}, ValueError, "at most 30"),
        ({"connect_timeout": None}, TypeError, "connect_timeout must be a number of seconds"),
        ({"connect_timeout": "1"}, TypeError, "a number of seconds"),
        ({"on_failure": "shut"}, ValueError, "'closed', 'open' or 'local'"),
        ({"on_failure": None}, TypeError, "on_failure"),
        ({"on_failure": {"a": 1}}, TypeError, "on_failure"),
    ],
)
def test_an_option_that_makes_no_sense_is_named_at_once(api: Api, option: dict[str, Any], kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said):
        api.from_url("memory://", "1/s", **option)

"""Each way in which a call of a server fails, on both APIs: what is raised, what it says, and what it never says."""

import json
import pickle
import re
import traceback
from typing import Any

import pytest
import redis
import redis.asyncio.sentinel
import redis.sentinel
from redis.exceptions import TryAgainError

from batchlimit import AsyncRateLimiter, RateLimiter, StoreUnavailable
from batchlimit.bucket.messages import Ask
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.waiter import Fail
from batchlimit.stores.async_redis import AsyncRedisStore
from batchlimit.stores.client.address import read_url
from batchlimit.stores.client.diagnosis import SYMPTOMS, code_of, failure
from batchlimit.stores.client.scripts import bucket_name, read_grant
from batchlimit.stores.open import open_store
from batchlimit.stores.redis import RedisStore
from tests.nodes import node
from tests.servers import SERVERS, Server, redis_binary, valkey_binary
from tests.stores import trouble
from tests.stores.opened import opened
from tests.stores.trouble import Trouble
from tests.tls import tls

KEY = "tenant:42"
HUNDRED = Quota(0.001, 100)
FIFTY = Ask("a", 1, need=50, queued=50, want=50, round_trip=2.0)
SECRETS = ("secret", "right@")


def says(answer: str) -> Trouble:
    return lambda: trouble.says(f"-{answer}\r\n".encode())


def forbidden(*rules: str) -> Trouble:
    return lambda: trouble.forbidden(*rules)


def forbidden_6_2(*rules: str) -> Trouble:
    return lambda: trouble.forbidden(*rules, binary=redis_binary)


STORE: list[tuple[str, Trouble, str, str]] = [
    ("refused", trouble.refused, "refused|Error 111|Connect call failed", "REFUSED"),
    ("reset", lambda: trouble.says(b""), "has it restarted", "LOST"),
    ("timeout", trouble.stopped, "(?i)timeout", "TIMEOUT"),
    ("TLS to a server without", trouble.without_tls, "(?i)timeout", "TIMEOUT"),
    ("LOADING", trouble.loading, "LOADING.*back by itself", "LOADING"),
    ("OOM", trouble.full, "OOM.*maxmemory", "OOM"),
    ("READONLY", trouble.replica, "READONLY.*connect to the primary", "READONLY"),
    ("BUSY", trouble.busy, "BUSY.*SCRIPT KILL", "BUSY"),
    ("MASTERDOWN", trouble.orphan, "MASTERDOWN.*connect to the primary", "MASTERDOWN"),
    ("CLUSTERDOWN", trouble.no_slots, "CLUSTERDOWN.*CLUSTER INFO", "CLUSTERDOWN"),
    ("MISCONF", trouble.unsaved, "MISCONF.*mend that", "MISCONF"),
    ("NOREPLICAS", trouble.lonely, "NOREPLICAS.*min-replicas", "NOREPLICAS"),
    ("maxclients", trouble.crowded, "max number of clients", "ERR"),
    ("NOPERM command", forbidden("allkeys", "+@all", "-evalsha"), "NOPERM.*docs/redis.md", "NOPERM"),
    ("NOPERM key", forbidden("~theirs:*", "+@all"), "NOPERM.*docs/redis.md", "NOPERM"),
    ("NOPERM in the script", forbidden("allkeys", "+@all", "-hset"), "NOPERM.*docs/redis.md", "NOPERM"),
    ("NOPERM in the script, Redis", forbidden_6_2("allkeys", "+@all", "-hset"), "NOPERM.*docs/redis.md", "NOPERM"),
    ("WRONGPASS", trouble.wrong_password, "WRONGPASS.*the password in the URL is wrong", "WRONGPASS"),
    ("NOAUTH", trouble.no_password, r"NOAUTH.*wants a password.*unix:///path\?password", "NOAUTH"),
    (
        "TRYAGAIN",
        says("TRYAGAIN Multiple keys request during rehashing of slot"),
        "TRYAGAIN.*over by itself",
        "TRYAGAIN",
    ),
    ("DENIED", says("DENIED Redis is running in protected mode"), "DENIED.*protected mode", "DENIED"),
    (
        "renamed",
        says("ERR Error running script: @user_script: 5: Unknown Redis command called from Lua"),
        "Unknown",
        "ERR",
    ),
    ("no sentinel", says("ERR unknown command 'SENTINEL', with args beginning with: "), "is no sentinel.*26379", "ERR"),
    ("no scripts", says("ERR unknown command 'evalsha', with args beginning with: "), r"fakeredis\[lua\]", "ERR"),
    ("unknown", says("SOMETHING new"), "SOMETHING new", "ERR"),
]
KEY_ALONE: list[tuple[str, Trouble, str, str]] = [
    ("MOVED", says("MOVED 866 127.0.0.1:7001"), r"MOVED.*redis\+cluster://", "MOVED"),
    ("ASK", says("ASK 866 127.0.0.1:7001"), r"ASK.*redis\+cluster://", "ASK"),
    (
        "CROSSSLOT",
        says("CROSSSLOT Keys in request don't hash to the same slot"),
        r"CROSSSLOT.*redis\+cluster://",
        "CROSSSLOT",
    ),
    (
        "script",
        says("ERR user_script:240: attempt to compare nil script: 4b, on @user_script:240."),
        "not be a bucket",
        "DAMAGED",
    ),
]


def failed(api: str, url: str, told: str) -> StoreUnavailable:
    """The error of a take, which says `told`, and nowhere a password."""
    with opened(api, url) as store:
        with pytest.raises(StoreUnavailable) as caught:
            store.take(KEY, HUNDRED, FIFTY)
        assert str(caught.value).startswith(f"{store.address} failed: ")
        shown = [str(caught.value), repr(caught.value), store.address, repr(store), repr(caught.value.__cause__)]
        assert not [secret for secret in SECRETS if any(secret in text for text in shown)]
    assert re.search(told, str(caught.value)), caught.value
    return caught.value


@pytest.mark.parametrize("case", STORE + KEY_ALONE, ids=lambda case: case[0])
def test_an_error_of_the_store_or_of_one_key_says_so_and_has_a_hint_and_a_code(
    api: str, case: tuple[str, Trouble, str, str]
) -> None:
    _, make, told, code = case
    with make() as url:
        error = failed(api, url, told)
    assert (type(error), error.code) == (BucketUnavailable if case in KEY_ALONE else StoreUnavailable, code)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("unix:///tmp/no-such-directory/s", "REFUSED"),
        ("redis://no-such-host.invalid", "UNREACHABLE"),
        ("redis+cluster://127.0.0.1:1", "REFUSED"),
        ("redis+sentinel://127.0.0.1:1/service", "NOPRIMARY"),
    ],
)
def test_who_cannot_connect_is_told_why_in_a_word(api: str, url: str, code: str) -> None:
    assert failed(api, url, "").code == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            redis.ConnectionError("Error Multiple exceptions: [Errno 111] Connect call failed"),
            "REFUSED",
        ),
        (redis.ConnectionError("Error 113 connecting to a:1. No route to host."), "UNREACHABLE"),
        (
            redis.ConnectionError("Error 8 connecting to a:1. nodename nor servname provided"),
            "UNREACHABLE",
        ),
        (redis.ConnectionError("Error 104 connecting to a:1. Connection reset by peer."), "LOST"),
        (redis.ConnectionError("Error 110 connecting to a:1. Connection timed out."), "TIMEOUT"),
        (redis.ConnectionError("Error 1 connecting to a:1. [SSL: CERTIFICATE_VERIFY_FAILED]"), "TLS"),
        (BrokenPipeError(32, "Broken pipe"), "LOST"),
        (OSError(24, "Too many open files"), "OTHER"),
        (redis.ConnectionError("Error 23 connecting to a:1. Too many open files in system."), "OTHER"),
        (TimeoutError("timed out"), "TIMEOUT"),
        (redis.TimeoutError("Timeout reading from socket"), "TIMEOUT"),
        (redis.InvalidResponse("Protocol Error: b'H'"), "PROTOCOL"),
        (redis.RedisError("new"), "OTHER"),
    ],
    ids=str,
)
def test_the_code_tells_what_became_of_the_connection(error: Exception, code: str) -> None:
    found = failure(error, "redis://a:1")
    assert found.code == code
    assert code not in SYMPTOMS or str(found).endswith(f" ({SYMPTOMS[code].hint})")


@pytest.mark.parametrize("module", [redis.sentinel, redis.asyncio.sentinel], ids=["threads", "tasks"])
def test_who_finds_no_primary_does_not_show_the_clients_of_the_sentinels(module: Any) -> None:
    shown = str(failure(module.MasterNotFoundError("No master found for 's' : <Redis(password=secret)>"), "redis://a"))
    said, _, hint = shown.partition(" (")
    assert said == "redis://a failed: MasterNotFoundError: No master found for 's'"
    assert hint == "no sentinel answers, or none knows a primary of this name: check both in the URL)"


@pytest.mark.parametrize("other", ["SET {0} theirs", "HSET {0} q theirs"], ids=["WRONGTYPE", "another hash"])
def test_another_type_at_the_name_of_a_bucket_concerns_its_key_alone(
    api: str, server: Server, prefix: str, other: str
) -> None:
    with server.client() as client, opened(api, server.url) as store:
        client.execute_command(*other.format(bucket_name("batchlimit", prefix)).split())
        with pytest.raises(BucketUnavailable) as caught:
            store.take(prefix, HUNDRED, FIFTY)
        assert store.take(f"{prefix}-other", HUNDRED, FIFTY).granted == 50
        client.delete(bucket_name("batchlimit", prefix))
    assert "bucket's name" in str(caught.value)


@pytest.mark.parametrize("name", list(SERVERS))
def test_servers_of_every_age_are_understood(name: str, api: str) -> None:
    """Redis before 7 wraps what a command in a script said."""
    with SERVERS[name]() as url:
        server = Server(name, url)
        with server.client() as client:
            client.config_set("maxmemory", 1)
            failed(api, url, "OOM.*maxmemory")
            client.config_set("maxmemory", 0)
            client.replicaof("127.0.0.1", 1)
            failed(api, url, "READONLY.*connect to the primary")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda url, _: url.partition("?")[0], r"TLS failed.*\?ssl_ca_certs=FILE"),
        (lambda url, _: url.replace("localhost", "127.0.0.1"), "TLS failed"),
        (lambda url, _: url.replace("rediss", "redis").partition("?")[0], "TLS"),
    ],
    ids=["an unknown authority", "another name", "no TLS"],
)
def test_a_failure_of_tls_says_so(api: str, change: object, told: str) -> None:
    assert callable(change)
    with tls(redis_binary()) as secured:
        failed(api, change(secured.url, secured), told)


def test_after_a_readonly_the_address_is_resolved_anew(api: str) -> None:
    """A managed failover gives the name to another machine, and leaves us connected to what is now a replica."""
    with node(valkey_binary()) as one, opened(api, f"{one.url}?client_name=ours") as store:
        store.take(KEY, HUNDRED, FIFTY)
        before = _ours(one.client())
        one.ask("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreUnavailable, match="READONLY"):
            store.take("other", HUNDRED, FIFTY)
        one.ask("REPLICAOF", "NO", "ONE")
        assert store.take("other", HUNDRED, FIFTY).granted == 50
        assert len(before) == 1
        assert _ours(one.client()).isdisjoint(before)


def test_the_connections_of_a_client_of_the_callers_stay() -> None:
    with node(valkey_binary()) as one, redis.Redis.from_url(f"{one.url}?client_name=ours") as client:
        store = RedisStore(client)
        store.take(KEY, HUNDRED, FIFTY)
        before = _ours(one.client())
        one.ask("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreUnavailable, match="READONLY"):
            store.take("other", HUNDRED, FIFTY)
        assert _ours(one.client()) == before


async def test_the_error_that_a_caller_is_handling_stays_as_it_is() -> None:
    """Who asks before it writes an error to a log logs all of it, also while the store is away."""
    with trouble.loading() as url, opened("threads", url) as threaded:
        store = open_store(read_url(url), for_tasks=True, prefix="batchlimit", connect_timeout=30.0, deadline=30.0)
        for take in (threaded.take, store.take):
            try:
                json.loads("{")
            except ValueError as error:
                error.args = ("at https://ann:word@host",)
                before = traceback.format_exc()
                with pytest.raises(StoreUnavailable):
                    await take(KEY, HUNDRED, FIFTY)  # type: ignore[misc]  # for threads it raises before that
                assert traceback.format_exc() == before
        await store.aclose()


def test_an_error_of_ours_that_a_user_has_by_now_stays_as_it_is() -> None:
    """Where `asyncio.run` ends by one, what is still under way fails while that is handled."""
    ours, later = StoreUnavailable("unix:///a failed: no"), redis.ConnectionError("no")
    later.__context__ = ours
    failure(later, "unix:///a")
    assert str(ours) == "unix:///a failed: no"


def _ours(client: redis.Redis) -> set[str]:
    with client:
        return {each["id"] for each in client.client_list() if each["name"] == "ours"}


@pytest.mark.parametrize("kind", [StoreUnavailable, BucketUnavailable])
def test_errors_travel_between_processes_and_callers(kind: type[StoreUnavailable]) -> None:
    error = kind("redis://localhost:6379/0 failed: no")
    travelled = pickle.loads(pickle.dumps(error))
    for copy in (travelled, Fail(error).to_raise("k")):
        assert type(copy) is kind
        assert str(copy) == str(error)


def test_every_symptom_has_a_hint() -> None:
    assert all(symptom.hint for symptom in SYMPTOMS.values())
    assert code_of(TryAgainError("no")) == "TRYAGAIN"
    assert "()" not in str(failure(redis.RedisError(), "redis://h"))


@pytest.mark.parametrize(
    "url",
    [
        "redis://:pa/secret@host:6379",
        "redis://:secret@host:port",
        "redis://:x:secret@host:70000",
        "redis://host?db=secret",
        "redis://[secret",
        "redis://u:secret\u2100@host",
        "redis+cluster://:secret@host:x",
        "redis+cluster://:secret@host/1",
        "redis+cluster://:secret@a,,b",
        "redis+sentinel://:secret@host",
        "redis+sentinel://:secret@host/service/x",
        "redis+magic://:secret@host",
        "unix+cluster://:secret@host",
        "secret",
        b"redis://:secret@host",
    ],
)
@pytest.mark.parametrize("limiter", [RateLimiter, AsyncRateLimiter])
def test_a_url_that_cannot_be_read_shows_no_password(limiter: type[RateLimiter], url: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        limiter.from_url(url, "1/s")
    told: BaseException | None = caught.value
    while told is not None:
        assert "secret" not in str(told)
        assert "secret" not in repr(told)
        told = told.__cause__ or told.__context__


def test_a_text_that_is_no_url_is_not_shown() -> None:
    with pytest.raises(ValueError, match="without a scheme: write it as redis://"):
        RedisStore.from_url("secret")


@pytest.mark.parametrize("store", [RedisStore, AsyncRedisStore])
def test_an_address_is_shown_without_its_password(store: type[RedisStore] | type[AsyncRedisStore]) -> None:
    urls = {
        "redis://u:secret@h:1/2": "redis://h:1/2",
        "unix://u@/p?password=secret": "unix:///p",
        "redis+cluster://u:secret@h:1,g": "redis+cluster://h:1,g:6379",
        "redis+sentinel://u:secret@h,g:2/s/3?sentinel_password=secret": "redis+sentinel://h:26379,g:2/s/3",
    }
    for url, address in urls.items():
        made = store.from_url(url)
        assert made.address == address
        assert "secret" not in repr(made)


ZERO = [1, 0, 0, 0, 0, 1, 5, 1, (HUNDRED & Quota(0.0)).encode().encode(), 0, 1000]


@pytest.mark.parametrize("reply", [[1, 2], None, [1, 0, 0, 0, 0, 1, 5, 1, b"nan:1", 0, 1000], ["1"] * 11, ZERO])
def test_a_reply_that_no_bucket_gives_concerns_its_key_alone(reply: Any) -> None:
    with pytest.raises(BucketUnavailable, match="no bucket"):
        read_grant(reply)

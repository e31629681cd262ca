"""Passwords are told to nobody but the server, and what strangers sent cannot pose as a line of the log.

Nobody has a reporter that captures the local variables along the whole chain of an error, either: see `Ears.report`.
"""

import asyncio
import contextlib
import logging
import re
import secrets
import signal
import socket
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import redis
import redis.asyncio

from batchlimit import BatchLimitError, LimiterClosed, Quota, RateLimited, RateLimiter, StoreUnavailable
from batchlimit.batching import FixedBatch
from batchlimit.quota.template import Template
from batchlimit.stores import AsyncRedisStore, MemoryStore, RedisStore
from tests.apis.blocking import Api
from tests.life.reporter import captured
from tests.nodes import node
from tests.servers import Server, redis_binary, valkey_binary
from tests.sync.stage import KEY, Clock, Stage, away
from tests.tls import tls

PLACES = {
    "no user": "redis://:{0}@{1}/0",
    "the query": "redis://{1}?password={0}",
    "one server": "redis://user:{0}@{1}",
    "health checks": "redis://user:{0}@{1}?health_check_interval=10",
    "TLS": "rediss://user:{0}@{1}?ssl_password={0}",
    "a cluster": "redis+cluster://user:{0}@{1}",
    "sentinels": "redis+sentinel://user:{0}@{1}/service?sentinel_password={0}",
    "sentinels with TLS": "rediss+sentinel://user:{0}@{1}/service?sentinel_password={0}",
}
PLAIN = {name: url for name, url in PLACES.items() if not url.startswith("rediss")}
plainly = pytest.mark.parametrize("place", PLAIN.values(), ids=PLAIN)
everywhere = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


class Ears:
    """Everything that is said: logged at any level, raised, or shown."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.secret = f"s3cr3t{secrets.token_hex(8)}"
        self._log = caplog
        self._said: list[str] = []

    def hear(self, *things: object) -> None:
        for thing in things:
            if isinstance(thing, BaseException):
                self._said += [str(thing), *traceback.format_exception(thing)]
                self.hear(*thing.args, *([thing.__cause__] if thing.__cause__ else []))
            self._said += [repr(thing), str(thing)]

    def report(self, error: BaseException) -> None:
        """Hear what a reporter has of an error."""
        self.hear(error)
        self._said.append(captured(error))

    def heard(self) -> str:
        return "\n".join([*self._said, self._log.text, *map(str, map(vars, self._log.records))])


@pytest.fixture
def ears(caplog: pytest.LogCaptureFixture) -> Iterator[Ears]:
    """Fail if the secret is heard during the test."""
    caplog.set_level(logging.DEBUG)
    for name in list(logging.root.manager.loggerDict):
        if name.split(".")[0] in ("redis", "batchlimit", "asyncio"):
            caplog.set_level(logging.DEBUG, name)
    found = Ears(caplog)
    yield found
    assert found.secret not in found.heard()
    assert found.secret[:8] not in found.heard(), "nor a part of it"


def _registry(limiter: Any) -> Any:
    return getattr(limiter, "_inner", limiter)._registry


def attempt(ears: Ears, api: Api, url: str, **options: Any) -> StoreUnavailable:
    """Use a limiter that cannot reach its server, in every way, and listen."""
    errors = []
    with api.from_url(url, "5/s", **options) as limiter:
        ears.hear(limiter, getattr(limiter, "_inner", limiter))
        registry = _registry(limiter)
        ears.hear(registry.store, registry.store.address)
        assert not limiter.try_acquire(KEY)
        for call in (limiter.acquire, limiter.decide, limiter.peek):
            said = f"^{re.escape(registry.store.address)} (failed|is away|did not answer)"
            with pytest.raises(StoreUnavailable, match=said) as caught:
                call(KEY)
            ears.report(caught.value)
            errors.append(caught.value)
        ears.hear(registry.entries[KEY], registry.entries[KEY].reservoir)
    return errors[-1]


@everywhere
def test_of_a_server_that_refuses_connections(ears: Ears, api: Api, place: str) -> None:
    assert "127.0.0.1:1" in str(attempt(ears, api, place.format(ears.secret, "127.0.0.1:1")))


def test_of_a_refund_that_no_server_takes(ears: Ears, api: Api) -> None:
    with api.from_url(f"redis://:{ears.secret}@127.0.0.1:1/3", "5/s") as limiter:
        with pytest.raises(StoreUnavailable, match=r"^redis://127\.0\.0\.1:1/3 failed: ") as caught:
            limiter.refund(KEY)
        ears.hear(caught.value)


def test_of_a_server_whose_name_nobody_knows(ears: Ears, api: Api) -> None:
    attempt(ears, api, f"rediss://:{ears.secret}@nowhere.invalid:1/0")


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    """A server with another password."""
    with node(valkey_binary(), "--requirepass", "another") as one:
        yield one.name


@plainly
def test_of_a_server_that_has_another_password(ears: Ears, api: Api, locked: str, place: str) -> None:
    attempt(ears, api, place.format(ears.secret, locked), connect_timeout=30.0, deadline=30.0)


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """The kernel accepts, and nobody ever answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@plainly
def test_of_a_server_that_does_not_answer(ears: Ears, api: Api, place: str) -> None:
    with silent() as address:
        attempt(ears, api, place.format(ears.secret, address), connect_timeout=0.1, deadline=0.05)


def test_of_a_server_with_tls_that_does_not_know_the_user(ears: Ears, api: Api) -> None:
    with tls(redis_binary()) as one:
        attempt(ears, api, one.url.replace("://", f"://user:{ears.secret}@"), connect_timeout=30.0, deadline=30.0)


def test_of_a_server_that_is_well(ears: Ears, api: Api, private: Server) -> None:
    with private.client() as client:
        client.config_set("requirepass", ears.secret)
    with api.from_url(f"{private.url}?password={ears.secret}", "5/s") as limiter:
        assert limiter.try_acquire(KEY)
        ears.hear(limiter, limiter.decide(KEY), limiter.statistics())
        with contextlib.suppress(RateLimited):
            limiter.acquire(KEY, 5, timeout=0)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:{0}/x@host:1/0",  # nobody encoded what is special in it
        "redis://:{0}#x@host:1/0",
        "redis://:{0}?x@host:1/0",
        "redis://host:{0}",
        "redis://:{0}@[host/0",
        "redis:{0}",
        "valkeys://host:1x/0?password={0}",
        "unix:///tmp/s?password={0}&socket_timeout=x",
        "http://:{0}@host:1/0",
        "//:{0}@host:1/0",
        ":{0}@host",
        "redis//:{0}@host",
        "redis://:{0}@host?foo=1",
        "redis://:{0}@host/zero",
        "redis://:pa@{0}@host",
        "rediss://:{0}@h?ssl_ca_certs=/no",
    ],
)
def test_of_a_url_with_a_slip(ears: Ears, api: Api, url: str) -> None:
    makers: list[Any] = [lambda url: api.from_url(url, "5/s"), RedisStore.from_url, AsyncRedisStore.from_url]
    for make in makers:
        with pytest.raises(ValueError, match=r"cannot be read|no store for") as caught:
            make(url.format(ears.secret))
        ears.report(caught.value)


def test_of_a_url_in_the_wrong_place(ears: Ears, api: Api) -> None:
    url = f"redis://:{ears.secret}@host:1/0"
    with pytest.raises(TypeError, match="a URL goes to from_url") as caught:
        api(url, "5/s")
    ears.report(caught.value)
    with pytest.raises(TypeError, match="must be a str") as caught:
        api.from_url(url.encode(), "5/s")
    ears.hear(caught.value)


# Secrets at each place of a URL, also of one that was cut in two.
URLS = [
    "redis://:{0}@host:1/0",
    "rediss://user:pa/ss#{0}@host",
    "redis+sentinel://:{0}@host/service",
    "unix:///tmp/s?password={0}",
    "redis:/:{0}@host",
    "https://user:{0}@host/path",
    "//:{0}@host",
]
ARGUMENTS: list[dict[str, Any]] = [
    {"quota": "URL"},
    {"quota": {"*": "URL"}},
    {"quota": {"URL": 5}},
    {"quota": {"URL": "5"}},
    {"quota": ["URL"]},
    {"quota": b"URL"},
    {"quota": lambda _key: "URL"},
    {"prefix": "URL{"},
    {"prefix": b"URL"},
    {"on_failure": "URL"},
    {"on_failure": {"*": "URL"}},
    {"on_failure": {b"URL": "open"}},
    {"fill": "URL"},
    {"sizer": "URL"},
    {"weight": "URL"},
    {"max_keys": "URL"},
    {"idle_after": "URL"},
    {"deadline": "URL"},
    {"connect_timeout": "URL"},
]


def _filled(value: Any, url: str) -> Any:
    match value:
        case str():
            return value.replace("URL", url)
        case bytes():
            return value.replace(b"URL", url.encode())
        case dict():
            return {_filled(name, url): _filled(each, url) for name, each in value.items()}
        case list():
            return [_filled(each, url) for each in value]
        case _:
            return (lambda _key: url) if callable(value) else value


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("wrong", ARGUMENTS, ids="-".join)
def test_of_a_url_in_the_place_of_any_argument(ears: Ears, api: Api, wrong: dict[str, Any], url: str) -> None:
    given = {"quota": "5/s", **_filled(wrong, url.format(ears.secret))}
    with pytest.raises((TypeError, ValueError)) as caught, api.from_url("redis://127.0.0.1:1", **given) as limiter:
        limiter.try_acquire(KEY)
    ears.hear(caught.value)


def test_of_a_url_in_the_place_of_a_prefix_that_it_may_be(ears: Ears, api: Api) -> None:
    with api.from_url("redis://127.0.0.1:1", "5/s", prefix=f"redis://:{ears.secret}@host") as limiter:
        ears.hear(_registry(limiter).store)


def test_of_a_url_that_changed_places_with_the_quota(ears: Ears, api: Api) -> None:
    with pytest.raises(ValueError, match="URL without a scheme") as caught:
        api.from_url("100/s", f"redis://:{ears.secret}@localhost")
    ears.report(caught.value)


@pytest.mark.parametrize("url", URLS)
def test_of_a_url_in_the_place_of_a_key(ears: Ears, api: Api, url: str, clock: Clock) -> None:
    """An error has the key as its attribute; what it says, and what is logged, has it without the password."""
    key, stage, said = url.format(ears.secret), Stage(MemoryStore(clock)), list[str]()
    with api(stage, "0.001/s burst 10", clock=clock) as limiter:
        limiter.acquire(key)
        calls: list[Any] = [
            lambda: limiter.acquire(key, 10, timeout=0),
            lambda: limiter.acquire(key, 11),
            lambda: limiter.acquire(key.encode()),  # type: ignore[arg-type]
            lambda: limiter.acquire(KEY, key),  # type: ignore[arg-type]
            lambda: limiter.acquire(KEY, timeout=key),  # type: ignore[arg-type]
            lambda: limiter.acquire_all([(key, 1), (key, 1)]),
            lambda: limiter.acquire_all(key),  # type: ignore[arg-type]
            lambda: limiter.acquire_all([key]),  # type: ignore[list-item]
            lambda: limiter.reserve(key, 1, on_error=key),  # type: ignore[call-overload]
            lambda: Template(key + "{x", 1),
            lambda: Template(key.encode(), 1),  # type: ignore[arg-type]
        ]
        for call in calls:
            with pytest.raises((BatchLimitError, ValueError, TypeError)) as caught:
                call()
            said.append(str(caught.value))
        with limiter.reserve(key, 1) as reservation:
            said.append(repr(getattr(reservation, "_inner", reservation)))
        said.append(repr(_registry(limiter).entries[key]))
    with pytest.raises(ValueError, match="no quota") as none, api(Stage(), {"other": "1/s"}) as limiter:
        limiter.try_acquire(key)
    said.append(str(none.value))
    assert all(ears.secret[:8] not in each for each in said), said


def test_of_clients_of_the_users_own(ears: Ears, api: Api) -> None:
    url = f"redis://:{ears.secret}@host:1/0"
    clients: list[Any] = [redis.Redis, redis.asyncio.Redis]
    ours, theirs = (each.from_url(url) for each in clients)
    if api is RateLimiter:
        ours, theirs = theirs, ours
    with pytest.raises(TypeError) as caught:
        api(ours, "5/s")
    ears.hear(caught.value)
    with api(theirs, "5/s") as limiter:
        ears.hear(limiter, getattr(limiter, "_inner", limiter))


@everywhere
@pytest.mark.parametrize("wait", ["one", "both"])
def test_of_a_task_that_is_cancelled_while_it_connects(ears: Ears, place: str, wait: str) -> None:
    """Its caller may make a TimeoutError of that, with the cancellation as its cause."""

    async def cancelled() -> None:
        store = AsyncRedisStore.from_url(place.format(ears.secret, address), connect_timeout=30.0, deadline=30.0)
        task = asyncio.ensure_future(store.peek("k", Quota(1.0, 1)))
        accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
        with accepted:
            if wait == "both":
                accepted.setblocking(False)
                if not place.startswith("rediss"):
                    await asyncio.get_running_loop().sock_recv(accepted, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
        ears.report(caught.value)
        await store.aclose()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        asyncio.run(cancelled())


def test_of_a_task_that_is_cancelled_while_its_client_is_reset(
    ears: Ears, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    async def cancelled() -> None:
        store = AsyncRedisStore.from_url(PLACES["health checks"].format(ears.secret, locked))
        begun = asyncio.Event()

        async def reset(error: Exception) -> None:
            begun.set()
            await asyncio.get_running_loop().create_future()

        monkeypatch.setattr(store._transport, "reset_after", reset)
        task = asyncio.ensure_future(store.peek("k", Quota(1.0, 1)))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        ears.report(caught.value)
        await store.aclose()

    asyncio.run(cancelled())


def test_of_a_signal_handler_that_raises_while_a_client_is_reset(
    ears: Ears, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    def interrupted(error: Exception) -> None:
        raise KeyboardInterrupt

    store = RedisStore.from_url(PLACES["one server"].format(ears.secret, locked))
    monkeypatch.setattr(store._transport, "reset_after", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        store.peek("k", Quota(1.0, 1))
    ears.report(caught.value)
    store.close()


@pytest.mark.parametrize("place", [PLACES["one server"], PLACES["health checks"], PLACES["sentinels"]])
def test_of_a_signal_handler_that_raises_while_a_thread_connects(
    ears: Ears, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the handler raised still says where the handler stands."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise KeyError("of the handler")

    def interrupted(connection: Any, *args: Any, **options: Any) -> object:
        if threading.current_thread() is not threading.main_thread():  # a monitor's, which the handler would miss
            return read_response(connection, *args, **options)
        signal.raise_signal(signal.SIGUSR1)
        return None

    read_response = redis.connection.AbstractConnection.read_response
    monkeypatch.setattr(redis.connection.AbstractConnection, "read_response", interrupted)  # the answer to AUTH
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with silent() as address:
            store = RedisStore.from_url(place.format(ears.secret, address), connect_timeout=30.0)
            with pytest.raises(KeyError, match="of the handler") as caught:
                store.peek("k", Quota(1.0, 1))
            store.close()
    finally:
        signal.signal(signal.SIGUSR1, before)
    ears.report(caught.value)
    assert "handle" in [each.name for each in caught.traceback]


def test_of_a_client_of_the_users_own(ears: Ears, locked: str) -> None:
    with redis.Redis.from_url(f"redis://:{ears.secret}@{locked}") as mine:
        with RateLimiter(mine, "5/s", deadline=30.0) as limiter, pytest.raises(StoreUnavailable) as caught:
            limiter.decide("k")
        ears.report(caught.value)
        assert isinstance(caught.value.__cause__, redis.AuthenticationError)


@everywhere
def test_of_a_quota_that_cannot_be_read_beside_a_url(ears: Ears, api: Api, place: str) -> None:
    with pytest.raises(ValueError, match="quota") as caught:
        api.from_url(
            place.format(ears.secret, "127.0.0.1:1").partition("&ssl")[0].replace("?ssl_password=" + ears.secret, ""),
            "1/x",
        )
    ears.report(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [{"quota": "URL"}, {"quota": {"*": "URL"}}, {"on_failure": "URL"}],
    ids=["quota", "quotas", "on_failure"],
)
def test_of_a_url_in_the_place_of_another_argument(ears: Ears, api: Api, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"the URL of a store: it is the first argument of from_url") as caught:
        api.from_url("memory://", **{"quota": "1/s", **_filled(arguments, URLS[0].format(ears.secret))})
    ears.report(caught.value)


@everywhere
def test_of_a_limiter_that_is_closed(ears: Ears, api: Api, place: str) -> None:
    limiter = api.from_url(place.format(ears.secret, "127.0.0.1:1"), "1/s")
    limiter.close()
    with pytest.raises(LimiterClosed) as caught:
        limiter.acquire("k")
    ears.report(caught.value)


# What strangers sent

LINE = "user:1\nERROR all is lost\r\n\x1b[2J"


def test_a_key_is_no_line_of_the_log(api: Api, caplog: pytest.LogCaptureFixture, far_away: None) -> None:
    """Nor of an error: where it is shown, it is as Python writes it."""
    caplog.set_level(logging.DEBUG)
    stage = Stage()

    said = []
    with api(stage, "0.001/s burst 10", sizer=FixedBatch(4)) as limiter:
        limiter.acquire(LINE)
        stage.before_back = away
        for call in (
            lambda: limiter.acquire(LINE, 10, timeout=0),
            lambda: limiter.acquire(LINE, 11),
            lambda: limiter.acquire_all([(LINE, 1), (LINE, 1)]),
            lambda: limiter.reserve(LINE, 1, on_error="foo"),  # type: ignore[call-overload]
        ):
            with pytest.raises((BatchLimitError, ValueError)) as caught:
                call()
            said.append(str(caught.value))
        with limiter.reserve(LINE, 1) as reservation:
            said.append(repr(getattr(reservation, "_inner", reservation)))
        registry = _registry(limiter)
        said.append(repr(registry.entries[LINE]))
    assert "were not given back" in caplog.text
    said += [record.getMessage() for record in caplog.records if record.name == "batchlimit"]
    assert sum("user:1" in each for each in said) >= 5
    assert not any(re.search(r"[\n\r\x1b]", each) for each in said)


class Person:
    """What a program may give to a function: with a name that a stranger chose."""

    password = "hidden"

    def __init__(self, name: str) -> None:
        self.name = name


@pytest.mark.parametrize(
    "name",
    [
        "{user.password}",
        "{0.__class__}",
        "{user.__class__.__init__.__globals__}",
        "{",
        "}",
        "{{user}}",
        "%(user)s",
        "$user",
    ],
)
def test_what_an_argument_says_is_no_template(name: str) -> None:
    """The template is the programmer's; an argument is what stands in its place, and is not read again."""

    def search(user: Person, text: str, **rest: str) -> None:
        """Nothing."""

    charged = Template("search:{user.name}:{text}:{more}", 1).of(search)
    assert charged(Person(name), name, more=name) == (f"search:{name}:{name}:{name}", 1)
    assert charged(Person(name), text=name, more="{text}") == (f"search:{name}:{name}:{{text}}", 1)


def test_an_argument_that_a_stranger_named_replaces_no_other() -> None:
    def search(user: str, **rest: str) -> None:
        """Nothing."""

    charged = Template("search:{user}", 1).of(search)
    assert charged("ann", rest="bob", self="bob", args="bob") == ("search:ann", 1)
    with pytest.raises(TypeError, match="multiple values"):
        charged("ann", user="bob")


def test_a_limited_function_is_charged_to_what_was_said(api: Api) -> None:
    with RateLimiter(MemoryStore(), "5/hour") as limiter:

        @limiter.limit("search:{user}")
        def search(user: str) -> str:
            return user

        assert search("{user.__class__}") == "{user.__class__}"
        assert limiter.peek("search:{user.__class__}").remaining == 4

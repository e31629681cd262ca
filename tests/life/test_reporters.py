"""An error reporter that captures local variables along the whole chain of an error finds no password in them."""

import asyncio
import contextlib
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import redis
import redis.asyncio

from batchlimit import LimiterClosed, RateLimiter, StoreUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.stores import AsyncRedisStore, RedisStore
from tests.apis.blocking import Api
from tests.life.reporter import captured
from tests.nodes import node
from tests.servers import redis_binary, valkey_binary
from tests.tls import tls

SECRET = f"s3cr3t{secrets.token_hex(8)}"
URL = f"redis://user:{SECRET}@host"
PLACES = {
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


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """The kernel accepts, and nobody ever answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def report(api: Api, url: str, **patience: float) -> str:
    """What a reporter has of every call of a limiter that cannot reach its server."""
    told = []
    with api.from_url(url, "5/s", **patience) as limiter:
        for call in (limiter.decide, limiter.peek, limiter.acquire, limiter.decide):
            with pytest.raises(StoreUnavailable) as caught:
                call("k")
            told.append(captured(caught.value))
    return "\n".join(told)


@everywhere
def test_of_a_server_that_refuses_connections(api: Api, place: str) -> None:
    assert SECRET not in report(api, place.format(SECRET, "127.0.0.1:1"))


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    """A server with another password."""
    with node(valkey_binary(), "--requirepass", "another") as one:
        yield one.name


@plainly
def test_of_a_server_that_has_another_password(api: Api, locked: str, place: str) -> None:
    assert SECRET not in report(api, place.format(SECRET, locked), connect_timeout=30.0, deadline=30.0)


@plainly
def test_of_a_server_that_does_not_answer(api: Api, place: str) -> None:
    with silent() as address:
        assert SECRET not in report(api, place.format(SECRET, address), connect_timeout=0.1, deadline=0.05)


@everywhere
@pytest.mark.parametrize("wait", ["one", "both"])
def test_of_a_task_that_is_cancelled_while_it_connects(place: str, wait: str) -> None:
    """Its caller may make a TimeoutError of that, with the cancellation as its cause."""

    async def cancelled() -> str:
        store = AsyncRedisStore.from_url(place.format(SECRET, address), connect_timeout=30.0, deadline=30.0)
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
        told = captured(caught.value)
        await store.aclose()
        return told

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert SECRET not in asyncio.run(cancelled())


@pytest.mark.parametrize("place", [PLACES["one server"], PLACES["health checks"], PLACES["sentinels"]])
def test_of_a_signal_handler_that_raises_while_a_thread_connects(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
            store = RedisStore.from_url(place.format(SECRET, address), connect_timeout=30.0)
            with pytest.raises(KeyError, match="of the handler") as caught:
                store.peek("k", Quota(1.0, 1))
            store.close()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert SECRET not in captured(caught.value)
    assert "handle" in [each.name for each in caught.traceback]


def test_of_a_server_with_tls_that_does_not_know_the_user(api: Api) -> None:
    with tls(redis_binary()) as one:
        url = one.url.replace("://", f"://user:{SECRET}@")
        assert SECRET not in report(api, url, connect_timeout=30.0, deadline=30.0)


def test_of_a_client_of_the_users_own(locked: str) -> None:
    with redis.Redis.from_url(f"redis://:{SECRET}@{locked}") as mine:
        with RateLimiter(mine, "5/s", deadline=30.0) as limiter, pytest.raises(StoreUnavailable) as caught:
            limiter.decide("k")
        assert SECRET not in captured(caught.value)
        assert isinstance(caught.value.__cause__, redis.AuthenticationError)


@pytest.mark.parametrize(
    "url",
    ["redis://:{0}@host?foo=1", "redis://:{0}@host/zero", "redis://:pa@{0}@host", "rediss://:{0}@h?ssl_ca_certs=/no"],
)
def test_of_a_url_that_cannot_be_read(api: Api, url: str) -> None:
    makers: list[Callable[[str], Any]] = [
        lambda url: api.from_url(url, "1/s"),
        RedisStore.from_url,
        AsyncRedisStore.from_url,
    ]
    for make in makers:
        with pytest.raises(ValueError, match="cannot be read") as caught:
            make(url.format(SECRET))
        assert SECRET not in captured(caught.value)


@everywhere
def test_of_a_quota_that_cannot_be_read_beside_a_url(api: Api, place: str) -> None:
    with pytest.raises(ValueError, match="quota") as caught:
        api.from_url(
            place.format(SECRET, "127.0.0.1:1").partition("&ssl")[0].replace("?ssl_password=" + SECRET, ""), "1/x"
        )
    assert SECRET not in captured(caught.value)


@pytest.mark.parametrize(
    "arguments", [{"quota": URL}, {"quota": {"*": URL}}, {"on_failure": URL}], ids=["quota", "quotas", "on_failure"]
)
def test_of_a_url_in_the_place_of_another_argument(api: Api, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"the URL of a store: it is the first argument of from_url") as caught:
        api.from_url("memory://", **{"quota": "1/s", **arguments})
    assert SECRET not in captured(caught.value)


def test_of_a_url_that_changed_places_with_the_quota(api: Api) -> None:
    with pytest.raises(ValueError, match="URL without a scheme") as caught:
        api.from_url("100/s", URL)
    assert SECRET not in captured(caught.value)


def test_of_a_url_in_the_place_of_a_store(api: Api) -> None:
    with pytest.raises(TypeError, match="a URL goes to from_url") as caught:
        api(URL, "1/s")
    assert SECRET not in captured(caught.value)


@everywhere
def test_of_a_limiter_that_is_closed(api: Api, place: str) -> None:
    limiter = api.from_url(place.format(SECRET, "127.0.0.1:1"), "1/s")
    limiter.close()
    with pytest.raises(LimiterClosed) as caught:
        limiter.acquire("k")
    assert SECRET not in captured(caught.value)

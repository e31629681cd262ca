"""Rules before a real aiohttp server, over a socket, in a time that the test sets."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from batchlimit import AsyncConcurrencyLimiter, AsyncRateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations.aiohttp import Limits, concurrency_limits, limited
from batchlimit.integrations.headers import Fields
from batchlimit.laws import Fixed
from batchlimit.rules import Rule, Rules, RulesError
from batchlimit.stores import MemoryStore
from tests.integrations.everywhere import Served, in_server
from tests.integrations.made.aiohttp import echo
from tests.integrations.structured import read_limits
from tests.sync.stage import Clock, until

RULES = [
    Rule("all", "1000/hour", key="all", match=["/search", "/view", "/shop"]),
    Rule("search", "5/hour", key="search:{user}", match=None, cost=2),
    Rule("bytes", "100/day", key="bytes:{user}", match=None, cost=50, charge=lambda response: response.sent),
    Rule("handshake", "2/hour", key="handshake:{user}", match="/ws"),
]
MESSAGES = [Rule("messages", "2/hour", key="messages:{user}", match="/ws")]


def user(request: web.Request) -> dict[str, object]:
    return {"user": request.headers.get("x-user", "nobody")}


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


@limited("search:{user}")
async def search(request: web.Request) -> web.Response:
    return web.Response(text="found")


class View(web.View):
    @limited("search:{user}")
    async def get(self) -> web.Response:
        return web.Response(text="viewed")


class Shop:
    @limited("search:{user}")
    async def search(self, request: web.Request) -> web.Response:
        return web.Response(text="sold")


@limited("bytes:{user}")
async def stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for number in range(3):
        await response.write(b"%d" % number * 10)
    await response.write_eof(b"last")
    return response


@limited("bytes:{user}")
async def payload(request: web.Request) -> web.Response:
    async def parts() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number * 10

    return web.Response(body=parts())


@limited("bytes:{user}")
async def plain(request: web.Request) -> web.Response:
    return web.Response(body=b"x" * 30)


def application() -> web.Application:
    app = web.Application()
    app.add_routes(
        [
            web.get("/search", search),
            web.view("/view", View),
            web.get("/shop", Shop().search),
            web.get("/stream", stream),
            web.get("/payload", payload),
            web.get("/plain", plain),
            web.get("/ws", echo),
            web.options("/search", hello),
        ]
    )
    return app


@contextmanager
def serving() -> Iterator[tuple[Served, Callable[[str], int]]]:
    """The application behind its rules, and what tells how much is left of a key."""
    made, clock = list[AsyncRateLimiter](), Clock()

    def make() -> AsyncRateLimiter:
        made.append(
            AsyncRateLimiter(MemoryStore(clock), Rules([*RULES, *MESSAGES]).quotas, clock=clock, sizer=FixedBatch(1))
        )
        return made[-1]

    app, limits = (
        application(),
        Limits(make, RULES, identify=user, messages=MESSAGES, headers=Fields(chance=lambda: 0.0)),
    )
    limits.setup(app)
    with in_server(app, limits.statistics) as at:
        yield at, lambda key: at.run(made[0].peek(key)).remaining


@pytest.mark.parametrize("path", ["/view", "/shop"])
def test_a_handler_of_a_class_is_limited(path: str) -> None:
    with serving() as (at, _):
        assert at.statuses(path, 3) == [200, 200, 429]
        assert at.get(path, "bob").status == 200


@pytest.mark.parametrize(
    ("path", "method", "sent"),
    [
        ("/stream", "GET", 34),
        ("/payload", "GET", 30),
        ("/payload", "HEAD", 0),
        ("/plain", "GET", 30),
        ("/plain", "HEAD", 0),
    ],
)
def test_a_body_is_charged_by_what_was_sent(path: str, method: str, sent: int) -> None:
    with serving() as (at, left):
        reply = at.get(path, method=method)
        assert (reply.status, len(reply.text), reply.limits["bytes"].r) == (200, sent, 50)
        until(lambda: left("bytes:ann") == 100 - sent)


def test_a_handshake_is_refused_before_the_upgrade_and_messages_are_limited() -> None:
    async def talks(client: Any) -> None:
        connect = partial(client.ws_connect, "/ws", headers={"x-user": "ann"})
        async with connect() as websocket:
            assert read_limits(websocket._response.headers)["handshake"].r == 1
            for text in ("one", "two"):
                await websocket.send_str(text)
                assert await websocket.receive_str() == text
            await websocket.send_str("three")
            message = await websocket.receive()
            assert (message.type, message.data, message.extra) == (aiohttp.WSMsgType.CLOSE, 1008, "too many messages")
        async with connect():
            pass
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await connect()
        assert caught.value.headers is not None
        assert (caught.value.status, caught.value.headers["retry-after"]) == (429, "1800")

    with serving() as (at, _):
        at.run(talks(at.call))
        counts = at.statistics().rules["messages"]
        assert (counts.acquired, counts.refused) == (2, 1)


async def test_a_key_that_no_rule_has_is_an_error_at_the_start_also_in_a_view_of_a_subapplication() -> None:
    class Typo(web.View):
        @limited("search:{user}")
        @limited("serch:{user}")
        async def get(self) -> web.Response:
            return web.Response()

    sub, app = web.Application(), web.Application()
    sub.add_routes([web.view("/", Typo)])
    app.add_subapp("/sub", sub)
    Limits("memory://", RULES).setup(app)
    with pytest.raises(RulesError, match="did you mean"):
        await web.AppRunner(app).setup()


def test_a_route_without_limits_before_it_is_a_503_and_told(caplog: pytest.LogCaptureFixture) -> None:
    @limited("alone:{user}")
    async def alone(request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.add_routes([web.get("/", alone)])
    with in_server(app, lambda: None) as at:
        assert at.get("/").status == 503
    assert "call setup(app) of Limits" in caplog.text


def test_a_class_is_not_decorated() -> None:
    with pytest.raises(TypeError, match="its methods"):
        limited("search:{user}")(View)


def test_a_message_whose_turn_was_cancelled_is_received_next() -> None:
    heard: list[Any] = []

    async def patient(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse()
        await websocket.prepare(request)
        receiving = asyncio.create_task(websocket.receive())
        await asking.wait()
        receiving.cancel()
        await asyncio.wait([receiving])
        heard.append((await websocket.receive()).data)
        return websocket

    asking = asyncio.Event()
    limits, app = Limits("memory://", RULES, messages=MESSAGES, identify=user), web.Application()
    front: Any = limits._front
    refused = front.refused_message

    async def slow(of: Any) -> Any:
        if not asking.is_set():
            asking.set()
            await asyncio.Event().wait()
        return await refused(of)

    front.refused_message = slow
    app.add_routes([web.get("/ws", patient)])
    limits.setup(app)

    async def talks(client: Any) -> None:
        async with client.ws_connect("/ws") as websocket:
            await websocket.send_str("hello")

    with in_server(app, limits.statistics) as at:
        at.run(talks(at.call))
    assert heard == ["hello"]


# At most so many at once: what needs a permit, and what it sends
@contextmanager
def limited_to_one(*routes: web.RouteDef) -> Iterator[tuple[Served, AsyncConcurrencyLimiter]]:
    """Serve these routes, one request at once."""
    limiter = AsyncConcurrencyLimiter(Fixed(1))
    app = web.Application(middlewares=[concurrency_limits(limiter)])
    app.add_routes(routes)
    with in_server(app, limiter.statistics) as at:
        yield at, limiter
        at.run(limiter.close())


def test_a_request_for_a_websocket_where_there_is_none_needs_a_permit() -> None:
    async def asks(client: Any) -> int:
        async with (
            limiter.acquire(),
            client.get("/", headers={"Upgrade": "websocket", "Connection": "upgrade"}) as reply,
        ):
            return int(reply.status)

    with limited_to_one(web.get("/", hello)) as (at, limiter):
        assert at.run(asks(at.call)) == 503


def test_a_websocket_gives_its_permit_back_when_it_is_open() -> None:
    async def talks(client: Any) -> None:
        async with client.ws_connect("/ws") as websocket, client.get("/") as reply:
            assert (reply.status, limiter.statistics().ignored) == (200, 1)
            await websocket.send_str("hello")
            assert await websocket.receive_str() == "hello"

    with limited_to_one(web.get("/", hello), web.get("/ws", echo)) as (at, limiter):
        at.run(talks(at.call))


@pytest.mark.parametrize(("fields", "wanted"), [({}, (200, "file")), ({"range": "bytes=0-1"}, (206, "fi"))])
def test_a_file_is_sent_once(fields: Any, wanted: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"file")

    async def file(request: web.Request) -> web.FileResponse:
        return web.FileResponse(tmp_path / "file")

    with limited_to_one(web.get("/", file)) as (at, _):
        assert [at.get("/", **fields)[:2] for _ in range(2)] == [wanted] * 2  # on one connection, and with one permit
    assert not caplog.records


def test_what_is_no_response_is_told_by_aiohttp_and_keeps_no_permit(caplog: pytest.LogCaptureFixture) -> None:
    async def forgetful(request: web.Request) -> Any:
        return None

    with limited_to_one(web.get("/", forgetful)) as (at, limiter):
        assert at.get("/").status == 500
        assert limiter.statistics().in_flight == 0
    assert "Missing return statement" in caplog.text


def test_an_error_with_a_status_is_no_answer() -> None:
    """As that of a client: it is what another service answered."""

    async def fails(request: web.Request) -> web.Response:
        raise aiohttp.ClientResponseError(Any, (), status=503)  # type: ignore[arg-type]

    with limited_to_one(web.get("/", fails)) as (at, limiter):
        assert at.get("/").status == 500
        assert (limiter.statistics().dropped, limiter.statistics().ignored) == (0, 1)


def test_what_a_handler_raises_may_be_answered_by_another_middleware() -> None:
    heard: list[tuple[int, bool, bool]] = []

    def charge(response: Any) -> bool:
        heard.append((response.status, response.complete, response.sent > 0))
        return False

    @web.middleware
    async def form(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            return await handler(request)  # type: ignore[no-any-return]
        except web.HTTPUnauthorized:
            return web.Response(status=401, text="form")

    async def locked(request: web.Request) -> web.Response:
        raise web.HTTPUnauthorized

    app = web.Application()
    app.router.add_get("/", locked)
    Limits("memory://", [Rule("all", "9/hour", key="all", charge=charge)], checks=False).setup(app)
    app.middlewares.insert(0, form)
    with in_server(app, lambda: None) as at:
        assert at.get("/")[:2] == (401, "form")
    assert heard == [(401, True, True)]


def test_a_handler_that_is_called_after_its_request_has_ended_says_so() -> None:
    requests: list[web.Request] = []

    async def keep(request: web.Request) -> web.Response:
        requests.append(request)
        return web.Response()

    app = web.Application()
    app.router.add_get("/", keep)
    Limits("memory://", [Rule("search", "9/hour", key="search", match=None)], checks=False).setup(app)
    with in_server(app, lambda: None) as at:
        assert at.get("/").status == 200
        with pytest.raises(LookupError, match="has ended"):
            at.run(limited("search")(keep)(requests[0]))

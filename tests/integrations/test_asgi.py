"""An ASGI application behind the middleware, called by hand in virtual time."""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from batchlimit import AsyncRateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.asgi.middleware import LimitedMessages
from batchlimit.integrations.enforcement import Outcome, Response
from batchlimit.integrations.headers import Fields
from batchlimit.rules import Request, Rule, Rules
from batchlimit.stores import MemoryStore
from tests.aio.loop import virtual_loop
from tests.integrations.asgi import App, Hello, call, http, lifespan, part, start, websocket
from tests.integrations.backing import Backing
from tests.integrations.charged.client import Client
from tests.integrations.servers import hypercorn

pytestmark = pytest.mark.virtual_time
IP = Rule("ip", "2/minute", key="ip:{ip}")
LOGIN = Rule("login", "5/hour", key="login:{ip}", match="POST /login", charge=lambda r: r.status == 401)


@asynccontextmanager
async def limited(
    app: App, *rules: Rule, messages: Iterable[Rule] = (), **options: Any
) -> AsyncIterator[RateLimitMiddleware]:
    """The application behind rules, with a limiter in the time of the loop that leases no more than it is asked for."""
    clock = virtual_loop().time
    quotas = Rules([*rules, *messages]).quotas
    async with AsyncRateLimiter(MemoryStore(clock), quotas, clock=clock, sizer=FixedBatch(1)) as limiter:
        options = {"headers": Fields(secret=b"s", chance=lambda: 1.0), "messages": messages, **options}
        yield RateLimitMiddleware(app, limiter, rules, **options)


async def left(middleware: RateLimitMiddleware, key: str) -> int:
    """What is left of a key."""
    limiter: AsyncRateLimiter = middleware.enforcer._limiter()
    return (await limiter.peek(key)).remaining


async def test_a_start_is_touched_once_and_nothing_else() -> None:
    sent = [start(), part(b"a", more=True), part(b"b", more=True), part(b"c")]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in sent:
            await send(message)

    async with limited(app, IP) as middleware:
        reply = await call(middleware, http())
    assert reply.messages[1:] == sent[1:]
    assert reply.messages[0]["headers"][0] == (b"content-type", b"text/plain")
    assert b"ratelimit" in reply.fields
    assert b"ratelimit" not in dict(sent[0]["headers"])  # the application's own message is left alone


async def test_a_second_start_of_an_application_that_is_wrong_is_left_alone() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        await send(start(500))

    async with limited(app, IP) as middleware:
        reply = await call(middleware, http())
    assert reply.messages[1] == start(500)


async def test_context_variables_go_down_and_up() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert variable.get() == "before"
        variable.set("within")
        await send(start())

    async with limited(app, IP, LOGIN) as middleware:
        for path, method in (("/", "GET"), ("/login", "POST")):
            variable.set("before")
            await call(middleware, http(path, method))
            assert variable.get() == "within"


async def test_cost_and_charge_may_be_asynchronous() -> None:
    async def cost(request: Any) -> int:
        await asyncio.sleep(1)
        return len(request.path)

    async def charge(response: Response) -> int:
        await asyncio.sleep(1)
        return response.sent

    async with limited(Hello(), Rule("all", "100/hour", key="all", cost=cost, charge=charge)) as middleware:
        await call(middleware, http("/123456789"))
        assert await left(middleware, "all") == 95


async def test_a_stream_is_settled_at_its_end_and_not_with_tasks_in_the_background() -> None:
    responses: list[Response] = []
    working, done = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        await send(part(b"12", more=True))
        assert not responses
        await send(part(b"3"))
        working.set()
        await done.wait()

    async with limited(app, rule_that_notes(responses)) as middleware:
        request = asyncio.create_task(call(middleware, http()))
        await working.wait()
        await asyncio.sleep(0.01)
        assert [(each.status, each.sent, each.complete) for each in responses] == [(200, 3, True)]
        assert responses[0].headers == [(b"content-type", b"text/plain")]
        done.set()
        await request
        assert len(responses) == 1


@pytest.mark.parametrize("by_cancelling", [False, True])
async def test_a_client_that_leaves_while_the_last_part_is_sent_pays_for_the_whole(by_cancelling: bool) -> None:
    """A server that closes the connection by itself tells of the disconnect before its `send` returns."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        await send(part(b"12", more=True))
        last = asyncio.ensure_future(send(part(b"3")))
        await asyncio.sleep(0)
        if not by_cancelling:
            assert (await receive())["type"] == "http.disconnect"
        last.cancel()
        await last

    async def hold(message: dict[str, Any]) -> None:
        if message.get("body") == b"3":
            await asyncio.Event().wait()

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    responses: list[Response] = []
    async with limited(app, rule_that_notes(responses)) as middleware:
        with pytest.raises(asyncio.CancelledError):
            await middleware(http(), gone, hold)  # type: ignore[arg-type]
    assert [(each.status, each.sent, each.complete) for each in responses] == [(200, 3, True)]


FILE = start(200, [(b"Content-Length", b"5")])
ENDINGS: dict[str, tuple[list[Any], tuple[int, int, bool, Any]]] = {
    "a file by pathsend": ([FILE, {"type": "http.response.pathsend"}], (200, 5, True, None)),
    "a file by zerocopysend": ([FILE, {"type": "http.response.zerocopysend"}], (200, 5, True, None)),
    "no response": ([], (500, 0, False, None)),
    "the client went away before": (["receive"], (499, 0, False, None)),
    "the client went away amid the response": ([start(), part(b"12", more=True), "receive"], (200, 2, False, None)),
    "an exception": ([ERROR := ZeroDivisionError()], (500, 0, False, ERROR)),
    "an exception amid the response": ([start(), ERROR], (200, 0, False, ERROR)),
    "an exception after the end": ([start(), part(b"all"), "receive", ERROR], (200, 3, True, None)),
}
"""What an application does in turn (send, receive, raise), and what `charge` hears: status, bytes, whole, error."""


@pytest.mark.parametrize("ending", ENDINGS)
async def test_the_end_of_a_request_is_told_once_and_an_exception_goes_on(ending: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for each in does:
            if isinstance(each, Exception):
                raise each
            await (receive() if each == "receive" else send(each))

    responses: list[Response] = []
    does, told = ENDINGS[ending]
    async with limited(app, rule_that_notes(responses)) as middleware:
        with pytest.raises(ZeroDivisionError) if ERROR in does else nullcontext():
            await call(middleware, http(), {"type": "http.disconnect"})
        assert [(each.status, each.sent, each.complete, each.error) for each in responses] == [told]
        assert await left(middleware, "noted") == 9


async def test_an_exception_of_send_goes_on_and_is_settled() -> None:
    responses: list[Response] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise OSError("the client is gone")

    async with limited(Hello(), rule_that_notes(responses)) as middleware:
        with pytest.raises(OSError, match="gone"):
            await middleware(http(), None, send)  # type: ignore[arg-type]
        assert [(type(each.error), each.sent, each.complete) for each in responses] == [(OSError, 0, False)]


@pytest.mark.parametrize("begun", [True, False])
async def test_an_application_that_is_cancelled_is_settled_all_the_same(begun: bool) -> None:
    responses: list[Response] = []
    waits = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if begun:
            await send(start())
        waits.set()
        await receive()
        await receive()

    async with limited(app, rule_that_notes(responses)) as middleware:
        request = asyncio.create_task(call(middleware, http()))
        await waits.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await asyncio.sleep(0.01)
        assert [(each.status, each.complete) for each in responses] == [(200 if begun else 499, False)]
        assert await left(middleware, "noted") == 9
        assert not middleware._front.home._settling


def rule_that_notes(responses: list[Response]) -> Rule:
    async def charge(response: Response) -> int:
        await asyncio.sleep(0)
        responses.append(response)
        return 1

    return Rule("noted", "10/hour", key="noted", cost=5, charge=charge)


async def test_an_own_answer_that_raises_after_it_has_started_goes_on_to_the_server() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start(429))
        raise LookupError("no template")

    async with limited(Hello(), Rule("off", "0/s", key="off"), on_rejected=lambda *_: app) as middleware:
        with pytest.raises(LookupError):
            await call(middleware, http())


async def test_forwarding_fields_that_the_server_has_read_are_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async with limited(Hello(), IP) as middleware:
        await call(middleware, http(headers=[(b"x-forwarded-for", b"9.9.9.9")], client=("127.0.0.1", 0)))
    assert "proxies=" not in caplog.text


async def test_other_scopes_pass_by() -> None:
    app, scope = Hello(), {"type": "mystery"}
    async with limited(app, IP) as middleware:
        await call(middleware, scope)
    assert app.seen == [scope]


DISCONNECT = {"type": "websocket.disconnect", "code": 1000}


async def test_a_websocket_that_floods_is_closed_and_its_application_sees_it_go() -> None:
    messages = [Rule("messages", "2/hour", key="messages:{ip}", match="/chat")]
    texts = [{"type": "websocket.receive", "text": str(number)} for number in range(4)]
    async with limited(Hello(), Rule("all", "9/s", key="all"), messages=messages) as middleware:
        reply = await call(middleware, websocket("/chat"), {"type": "websocket.connect"}, *texts)
        assert [each.get("text") for each in reply.messages if each["type"] == "websocket.send"] == ["0", "1"]
        assert (reply.messages[-1]["type"], reply.messages[-1]["code"]) == ("websocket.close", 1008)
        counts = middleware.statistics()
        assert (counts.requests, counts.rules["messages"].acquired, counts.rules["messages"].refused) == (1, 2, 1)
        assert await left(middleware, "all") == 8  # messages are no requests
        reply = await call(middleware, websocket("/other"), {"type": "websocket.connect"}, *texts, DISCONNECT)
        assert len([each for each in reply.messages if each["type"] == "websocket.send"]) == 4


async def test_a_websocket_that_was_closed_here_takes_no_more() -> None:
    received: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        received.extend([(await receive())["type"], (await receive())["type"]])
        await send({"type": "websocket.send", "text": "too late"})

    messages = [Rule("messages", "0/s", key="messages")]
    async with limited(app, IP, messages=messages) as middleware:
        text = {"type": "websocket.receive", "text": "hello"}
        reply = await call(middleware, websocket(), {"type": "websocket.connect"}, text)
    assert received == ["websocket.disconnect"] * 2
    assert [each["type"] for each in reply.messages] == ["websocket.accept", "websocket.close"]


async def test_a_message_that_was_charged_while_its_receiver_was_cancelled_is_not_lost() -> None:
    class Slow:
        async def admit(self, request: Any) -> Outcome:
            await gate.wait()
            return Outcome()

    async def receive() -> dict[str, Any]:
        return incoming.pop(0)

    gate, incoming = asyncio.Event(), [{"type": "websocket.receive", "text": str(number)} for number in range(2)]
    messages: Any = LimitedMessages(cast(Any, Slow()), Request("GET", "/"), receive, cast(Any, None))
    waiting = asyncio.create_task(messages.receive())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    assert [(await messages.receive())["text"] for _ in range(2)] == ["0", "1"]


async def test_a_limiter_is_closed_before_the_server_hears_that_the_application_has_stopped() -> None:
    made: list[AsyncRateLimiter] = []
    incoming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    def factory() -> AsyncRateLimiter:
        made.append(AsyncRateLimiter.from_url("memory://", Rules([IP]).quotas))
        return made[-1]

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        assert made[0]._registry.closed == (message["type"] == "lifespan.shutdown.complete")

    await RateLimitMiddleware(Hello(), factory, [IP])({"type": "lifespan"}, receive, send)


async def test_a_server_is_told_that_the_start_has_failed_where_no_limiter_can_be_made() -> None:
    def factory() -> AsyncRateLimiter:
        raise ValueError("no URL is set")

    incoming, sent = [{"type": "lifespan.startup"}], list[dict[str, Any]]()

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    with pytest.raises(ValueError, match="no URL is set"):
        await RateLimitMiddleware(Hello(), factory, [IP])({"type": "lifespan"}, receive, send)
    assert [each["type"] for each in sent] == ["lifespan.startup.failed"]
    assert "no URL is set" in sent[0]["message"]


async def test_a_limiter_of_somebody_else_is_not_closed() -> None:
    async with AsyncRateLimiter.from_url("memory://", Rules([IP]).quotas) as limiter:
        app = RateLimitMiddleware(Hello(), limiter, [IP])
        await call(app, {"type": "lifespan"}, {"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})
        assert await limiter.try_acquire("ip:somebody")


@pytest.mark.parametrize("path", ["/login", "/login\n", "/v1/login", "/v1/login\n"])
async def test_each_spelling_that_starlette_routes_is_limited(path: str) -> None:
    async def seen(request: Any) -> PlainTextResponse:
        return PlainTextResponse("seen")

    rule = Rule("login", "1/hour", key="login", match="GET /login")
    async with limited(Starlette(routes=[Route("/login", seen)]), rule) as app:
        replies = [await call(app, http(path) | {"root_path": "/v1"}) for _ in range(2)]
        assert [(each.status, each.body[:4]) for each in replies] == [(200, b"seen"), (429, b'{"ty')]


# Behind hypercorn, where a client asks to close the connection
async def held_hello(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return

    async def until_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    gone = asyncio.create_task(until_gone())
    await send(start())
    await send(part(b"hello"))
    await gone


def test_a_client_that_asks_to_close_the_connection_pays_for_a_complete_response() -> None:
    responses: list[Response] = []

    def charge(response: Response) -> bool:
        responses.append(response)
        return response.complete

    app = RateLimitMiddleware(held_hello, "memory://", [Rule("all", "9/hour", key="all", charge=charge)], checks=False)
    with hypercorn(app, Backing([])) as port:
        assert Client(port).ask("ann", "/", connection="close") == 200
    assert [(each.status, each.complete, each.sent) for each in responses] == [(200, True, 5)]

"""What Quart alone has: an extension with init_app, decorators, blueprints, error handlers, a check at the start."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from quart import Blueprint, Quart, websocket
from quart.testing.connections import WebsocketResponseError
from quart.views import MethodView

from batchlimit.integrations.quart import Limits, Rejected, limit_blueprint, limited
from batchlimit.rules import Rule, RulesError
from tests.integrations.asgi import call, part, start
from tests.integrations.asgi import websocket as websocket_scope

RULES = [
    Rule("once", "1/hour", key="once:{user}", match=None),
    Rule("other", "1/hour", key="other", match="/other/*"),
    Rule("api", "2/hour", key="api", match=None),
]


def user_of(scope: Any) -> dict[str, str]:
    return {"user": dict(scope["headers"]).get(b"x-user", b"ann").decode()}


def application(**options: Any) -> Quart:
    app = Quart("test")
    Limits("memory://", RULES, app, identify=user_of, **options)
    return app


@asynccontextmanager
async def running(app: Quart) -> AsyncIterator[Any]:
    """A client of an application that has started, and stops at the end."""
    async with app.test_app() as it:
        yield it.test_client()


async def statuses(client: Any, path: str, times: int = 2, **options: Any) -> list[int]:
    return [(await client.get(path, **options)).status_code for _ in range(times)]


def a_view() -> Any:
    async def hello() -> str:
        return "hello"

    return hello


def _decorated(app: Quart, key: str = "once:{user}") -> None:
    app.get("/x")(limited(key)(a_view()))


def _class(app: Quart) -> None:
    class View(MethodView):
        decorators = [limited("once:{user}")]  # noqa: RUF012

        async def get(self) -> str:
            return "hello"

    app.add_url_rule("/x", view_func=View.as_view("x"))


def _blueprint(app: Quart, key: str = "once:{user}") -> None:
    blueprint = Blueprint("some", "test")
    limit_blueprint(blueprint, key)
    blueprint.get("/x")(a_view())
    app.register_blueprint(blueprint)


def _nested(app: Quart) -> None:
    outer, inner = Blueprint("outer", "test"), Blueprint("inner", "test")
    limit_blueprint(outer, "once:{user}")
    inner.get("/x")(a_view())
    outer.register_blueprint(inner)
    app.register_blueprint(outer)


@pytest.mark.parametrize("place", [_class, _nested])
async def test_a_limit_holds_wherever_quart_takes_one(place: Callable[[Quart], None]) -> None:
    app = application()
    place(app)
    async with running(app) as client:
        replies = [await client.get("/x") for _ in range(2)]
        assert [each.status_code for each in replies] == [200, 429]
        assert replies[1].headers["ratelimit"].startswith('"once";r=0')
        assert (await client.get("/x", headers={"x-user": "bob"})).status_code == 200


async def test_two_limits_of_one_view_hold_both() -> None:
    app = application()
    app.get("/x")(limited("api")(limited("once:{user}")(a_view())))
    async with running(app) as client:
        assert await statuses(client, "/x", headers={"x-user": "ann"}) == [200, 429]
        assert await statuses(client, "/x", headers={"x-user": "bob"}) == [429, 429]  # `api` is spent


async def test_an_application_may_be_told_later_and_the_store_by_its_setting() -> None:
    limits, app = Limits(None, RULES, identify=user_of), Quart("test")
    with pytest.raises(ValueError, match="BATCHLIMIT_URL"):
        limits.init_app(app)
    app.config["BATCHLIMIT_URL"] = "memory://"
    limits.init_app(app)
    with pytest.raises(RuntimeError, match="has limits already"):
        limits.init_app(app)
    app.get("/other/<name>")(lambda name: name)
    async with running(app) as client:
        assert await statuses(client, "/other/a") == [200, 429]
        assert limits.statistics(app).rules["other"].refused == 1


@pytest.mark.parametrize("handled", [429, Rejected])
async def test_a_handler_of_the_users_own_answers_and_the_fields_are_added(handled: Any) -> None:
    app = application()
    _decorated(app)

    async def answer(error: Rejected) -> tuple[str, int]:
        return f"slow down: {error.refusal.rules[0]}", 420

    app.register_error_handler(handled, answer)
    async with running(app) as client:
        assert await statuses(client, "/x", 1) == [200]
        refused = await client.get("/x")
        assert (refused.status_code, await refused.get_data(as_text=True)) == (420, "slow down: once")
        assert {"ratelimit", "retry-after"} <= set(refused.headers.keys())


async def test_on_rejected_may_send_several_parts_and_a_field_twice_and_a_handler_of_a_status_goes_first() -> None:
    def rejected(scope: Any, refusal: Any) -> Any:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            await send(start(420, [(b"x-mine", b"1"), (b"x-mine", b"2")]))
            await send(part(b"mine", more=True))
            await send(part(b"!"))

        return answer

    for handles in (False, True):
        app = application(on_rejected=rejected)
        _decorated(app)
        if handles:
            app.register_error_handler(429, lambda error: ("", 421))
        async with running(app) as client:
            _, refused = [await client.get("/x") for _ in range(2)]
            told = refused.status_code, await refused.get_data(as_text=True), refused.headers.getlist("x-mine")
            assert told == ((421, "", []) if handles else (420, "mine!", ["1", "2"]))


def _websockets(app: Quart) -> None:
    blueprint = Blueprint("chats", "test")
    limit_blueprint(blueprint, "once:{user}")

    @app.websocket("/decorated")
    @limited("once:{user}")
    async def decorated() -> None:
        await websocket.send("welcome")

    @blueprint.websocket("/blueprint")
    async def of_blueprint() -> None:
        await websocket.send("welcome")

    app.register_blueprint(blueprint)


@pytest.mark.parametrize("path", ["/decorated", "/blueprint"])
async def test_a_websocket_is_closed_with_1008_or_answered_429_where_the_server_can(path: str) -> None:
    app = application()
    _websockets(app)
    async with running(app) as client:
        async with client.websocket(path) as chat:
            assert await chat.receive() == "welcome"
        closed = await call(app, websocket_scope(path), {"type": "websocket.connect"})
        assert [(each["type"], each["code"]) for each in closed.messages] == [("websocket.close", 1008)]
        with pytest.raises(WebsocketResponseError) as answered:
            async with client.websocket(path) as chat:
                await chat.receive()
        assert answered.value.response.status_code == 429
        assert answered.value.response.headers["ratelimit"].startswith('"once";r=0')


async def test_a_websocket_that_is_open_already_is_closed() -> None:
    app = application(on_rejected=lambda scope, refusal: None)
    _websockets(app)

    @app.before_websocket
    async def accept() -> None:
        await websocket.accept()

    async with running(app):
        connect = {"type": "websocket.connect"}
        replies = [await call(app, websocket_scope("/decorated"), connect) for _ in range(2)]
        assert [each["type"] for each in replies[1].messages] == ["websocket.accept", "websocket.close"]
        assert replies[1].messages[-1]["code"] == 1008


def _websocket(app: Quart, key: str) -> None:
    app.websocket("/x")(limited(key)(a_view()))


@pytest.mark.parametrize("place", [_decorated, _websocket, _blueprint])
async def test_a_key_that_no_rule_has_ends_the_start(place: Callable[[Quart, str], None]) -> None:
    place(app := application(), "one:{user}")
    with pytest.raises(Exception, match="did you mean 'once:"):
        async with running(app):
            ...


def test_a_limit_that_cannot_work_is_told_where_it_is_written() -> None:
    with pytest.raises(RulesError):
        limited("once:{user")
    with pytest.raises(RulesError):
        limit_blueprint(Blueprint("some", "test"), "once:{user}", cost=-1)
    with pytest.raises(TypeError):
        application(identfy=None)


async def test_a_decorator_above_the_route_ends_the_start() -> None:
    app = application()
    limited("once:{user}")(app.get("/x")(a_view()))
    with pytest.raises(Exception, match=r"write @limited below @app.route \(hello\)"):
        async with running(app):
            ...


async def test_a_decorator_above_the_route_is_a_503_where_no_start_was_told(caplog: pytest.LogCaptureFixture) -> None:
    app = application()
    limited("once:{user}")(app.get("/x")(a_view()))
    app.get("/y")(lambda: "y")
    client = app.test_client()
    refused = await client.get("/x")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert await statuses(client, "/x") == [503, 503]
    assert await statuses(client, "/y") == [200, 200]
    assert [each.levelname for each in caplog.records if "'hello'" in each.getMessage()] == ["ERROR"]


async def test_a_function_that_another_route_has_with_a_limit_may_be_a_view_without() -> None:
    app, hello = application(), a_view()
    app.get("/free", endpoint="free")(hello)
    app.get("/x")(limited("once:{user}")(hello))
    async with running(app) as client:
        assert await statuses(client, "/free") == [200, 200]
        assert await statuses(client, "/x") == [200, 429]


async def test_without_limits_a_limited_view_is_closed_and_told(caplog: pytest.LogCaptureFixture) -> None:
    app = Quart("test")
    app.get("/x")(limited("nobody:{user}")(a_view()))
    async with running(app) as client:
        replies = [await client.get("/x") for _ in range(2)]
        assert [(each.status_code, each.headers["retry-after"]) for each in replies] == [(503, "1")] * 2
    assert [each.levelname for each in caplog.records if "'nobody:{user}'" in each.getMessage()] == ["ERROR"]

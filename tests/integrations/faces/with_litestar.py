"""The application of the matrix in Litestar."""

from typing import Any

from litestar import Controller, Litestar, Response, Router, get, websocket
from litestar.connection import ASGIConnection
from litestar.connection import WebSocket as WebSocketConnection
from litestar.exceptions import WebSocketDisconnect
from litestar.params import FromPath
from litestar.response import Stream

from batchlimit.integrations.litestar import add_rate_limits, limited, route_limit
from tests.integrations.faces.rules import RULES, endless, parts, user_of


def told(connection: ASGIConnection[Any, Any, Any, Any]) -> dict[str, str]:
    return {"user": connection.headers.get("x-told", "told")}


@get("/hello")
async def hello() -> str:
    return "hello"


@get("/search", guards=[limited("search:{user}")], sync_to_thread=True)
def search() -> str:
    return "found"


class Included(Controller):
    path = "/included"
    guards = [limited("search:{user}")]  # noqa: RUF012

    @get("/search")
    async def search(self) -> str:
        return "found"


@get("/search")
async def mounted() -> str:
    return "found"


@get("/told", guards=[limited("search:{user}", identify=told)])
async def by_told() -> str:
    return "found"


@get("/items/{id:str}", guards=[limited("item:{id}")])
async def item(id: FromPath[str]) -> str:  # noqa: A002
    return id


@get("/stream", guards=[limited("bytes:{user}")])
async def stream() -> Stream:
    return Stream(parts(), media_type="text/plain")


@get("/endless", guards=[limited("gone:{user}")])
async def without_end() -> Stream:
    return Stream(endless(), media_type="text/plain")


@get("/login/{status:int}", guards=[limited("login:{user}", charge=[401])])
async def login(status: FromPath[int]) -> Response[None]:
    return Response(None, status_code=status)


@get("/broken", guards=[limited("broken:{user}")])
async def broken() -> str:
    raise ZeroDivisionError


@get("/closed", guards=[limited("closed")])
async def closed() -> str:
    return "here"


@get("/open", guards=[limited("open")])
async def opened() -> str:
    return "here"


@get("/local", guards=[limited("local")])
async def local() -> str:
    return "here"


@get("/typo", middleware=[route_limit("serch:{user}")])
async def typing_error() -> str:
    return "here"


@websocket("/ws", middleware=[route_limit("handshake:{user}")])
async def echo(socket: WebSocketConnection[Any, Any, Any]) -> None:
    await socket.accept()
    try:
        while True:
            await socket.send_text(await socket.receive_text())
    except WebSocketDisconnect:
        return


def build(limiter: Any, *, typo: bool = False, **options: Any) -> Litestar:
    handlers: list[Any] = [hello, search, Included, by_told, item, stream, login, broken, closed, opened, echo]
    handlers += [local, without_end]
    router = Router("/mounted", route_handlers=[mounted], guards=[limited("search:{user}")])
    app = Litestar([*handlers, router, *([typing_error] if typo else [])], openapi_config=None, logging_config=None)
    add_rate_limits(app, limiter, RULES, identify=user_of, **options)
    return app

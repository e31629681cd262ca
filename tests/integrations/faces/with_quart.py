"""The application of the matrix in Quart."""

from typing import Any

from quart import Blueprint, Quart, Response, Websocket, websocket

from batchlimit.integrations.quart import Limits, limit_blueprint, limited
from tests.integrations.faces.rules import RULES, endless, parts, user_of


def told(connection: Any) -> dict[str, str]:
    return {"user": connection.headers.get("x-told", "told")}


def build(limiter: Any, *, typo: bool = False, **options: Any) -> Quart:
    app = Quart(__name__)
    included, mounted = Blueprint("included", __name__, url_prefix="/included"), Blueprint("mounted", __name__)
    limit_blueprint(included, "search:{user}")

    @app.get("/hello")
    @included.get("/search")
    async def hello() -> str:
        return "hello"

    @app.get("/search")
    @mounted.get("/search")
    @limited("search:{user}")
    def search() -> str:  # in a thread
        return "found"

    @app.get("/told")
    @limited("search:{user}", identify=told)
    async def by_told() -> str:
        return "found"

    @app.get("/items/<id>")
    @limited("item:{id}")
    async def item(id: str) -> str:  # noqa: A002
        return id

    @app.get("/stream")
    @limited("bytes:{user}")
    async def stream() -> Any:
        return parts(), {"content-type": "text/plain"}

    @app.get("/endless")
    @limited("gone:{user}")
    async def without_end() -> Any:
        return endless(), {"content-type": "text/plain"}

    @app.get("/login/<int:status>")
    @limited("login:{user}", charge=[401])
    async def login(status: int) -> Response:
        return Response("", status=status)

    @app.get("/broken")
    @limited("broken:{user}")
    async def broken() -> str:
        raise ZeroDivisionError

    @limited("closed")
    async def closed() -> str:
        return "here"

    @limited("open")
    async def opened() -> str:
        return "here"

    @app.get("/local")
    @limited("local")
    async def local() -> str:
        return "here"

    @app.websocket("/ws")
    @limited("handshake:{user}")
    async def echo() -> None:
        connection: Websocket = websocket
        await connection.accept()
        while True:
            await connection.send(await connection.receive())

    app.get("/closed")(closed)
    app.get("/open")(opened)
    if typo:
        app.get("/typo", endpoint="typo")(limited("serch:{user}")(opened))
    outer = Blueprint("outer", __name__, url_prefix="/mounted")
    outer.register_blueprint(mounted)
    app.register_blueprint(included)
    app.register_blueprint(outer)
    Limits(limiter, RULES, app, identify=user_of, **options)
    return app

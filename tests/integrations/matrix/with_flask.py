"""The application of the matrix in Flask."""

from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Flask, Response

from batchlimit.integrations.flask import Limits
from tests.integrations.faces.rules import RULES


def parts() -> Iterator[bytes]:
    for number in range(3):
        yield b"%d" % number * 10


def endless() -> Iterator[bytes]:
    while True:
        yield b"x" * 65536


def build(limiter: Any) -> Flask:
    app, included, mounted = Flask(__name__), Blueprint("included", __name__), Blueprint("mounted", __name__)
    limits = Limits(limiter, RULES, app, identify=lambda request: {"user": request.headers.get("x-user", "nobody")})

    @app.get("/hello")
    def hello() -> str:
        return "hello"

    @app.get("/search")
    @included.get("/search")
    @mounted.get("/search")
    @limits.limited("search:{user}")
    def search() -> str:
        return "found"

    @app.get("/items/<id>")
    @limits.limited("item:{id}")
    def item(id: str) -> str:  # noqa: A002
        return id

    @app.get("/stream")
    @limits.limited("bytes:{user}")
    def stream() -> Response:
        return Response(parts())

    @app.get("/endless")
    @limits.limited("gone:{user}")
    def without_end() -> Response:
        return Response(endless())

    @app.get("/login/<int:status>")
    @limits.limited("login:{user}", charge=[401])
    def login(status: int) -> Response:
        return Response(status=status)

    @app.get("/broken")
    @limits.limited("broken:{user}")
    def broken() -> str:
        raise ZeroDivisionError

    for name in ("closed", "open", "local"):
        app.add_url_rule(f"/{name}", name, limits.limited(name)(lambda: "here"))
    outer = Blueprint("outer", __name__)
    outer.register_blueprint(mounted)
    app.register_blueprint(included, url_prefix="/included")
    app.register_blueprint(outer, url_prefix="/mounted")
    return app

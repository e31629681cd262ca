"""Routes of Quart."""

from typing import Any

from quart import Quart, request

from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.quart import Limits
from tests.integrations.targets.apps import RULES, STORE, served


def _app() -> Quart:
    app = Quart(__name__)

    def add(path: str, name: str, methods: list[str]) -> None:
        async def answer(**told: str) -> Any:
            return "here", served(name, request.method)

        app.add_url_rule(path, path, answer, methods=methods)

    add("/open", "open", ["GET"])
    add("/login", "login", ["GET", "POST", "OPTIONS"])
    add("/items/<id>", "item", ["GET"])
    add("/api", "api", ["GET"])
    add("/api/<path:rest>", "api", ["GET", "POST"])
    add("/orders", "order", ["GET", "POST"])
    return app


def quart() -> Any:
    app = _app()
    Limits(STORE, RULES, app)
    return app


def asgi() -> Any:
    return RateLimitMiddleware(_app(), STORE, RULES)

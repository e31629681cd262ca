"""Routes of Litestar."""

from typing import Any

from litestar import Litestar, Request, Response, route

from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.litestar import add_rate_limits
from tests.integrations.targets.apps import RULES, STORE, served


def _answering(name: str, paths: list[str], methods: list[Any]) -> Any:
    @route(paths, http_method=methods)
    async def answer(request: Request[Any, Any, Any]) -> Response[str]:
        return Response("here", headers=served(name, request.method), status_code=200)

    return answer


def _app() -> Litestar:
    routes = [
        _answering("open", ["/open"], ["GET"]),
        _answering("login", ["/login"], ["GET", "POST", "OPTIONS"]),
        _answering("item", ["/items/{id:str}"], ["GET"]),
        _answering("api", ["/api", "/api/{rest:path}"], ["GET", "POST"]),
        _answering("order", ["/orders"], ["GET", "POST"]),
    ]
    return Litestar(routes, openapi_config=None, logging_config=None)


def litestar() -> Any:
    app = _app()
    add_rate_limits(app, STORE, RULES)
    return app


def asgi() -> Any:
    return RateLimitMiddleware(_app(), STORE, RULES)

"""Routes of Starlette and FastAPI."""

from typing import Any

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from batchlimit.integrations import fastapi as of_fastapi
from batchlimit.integrations import starlette as of_starlette
from batchlimit.integrations.asgi import RateLimitMiddleware
from tests.integrations.targets.apps import RULES, STORE, served


def _answering(route: str) -> Any:
    async def answer(request: Request) -> Response:
        return Response("here", headers=served(route, request.method))

    return answer


class _Every(HTTPEndpoint):
    """Answers every method."""

    async def dispatch(self) -> None:
        response = Response("here", headers=served("api", self.scope["method"]))
        await response(self.scope, self.receive, self.send)


def _routes() -> list[Any]:
    below = [Route("/{rest:path}", _Every), Route("/", _Every)]
    return [
        Route("/open", _answering("open")),
        Route("/login", _answering("login"), methods=["GET", "POST", "OPTIONS"]),
        Route("/items/{id}", _answering("item")),
        Mount("/api", routes=below),
        Route("/orders", _answering("order"), methods=["GET", "POST"]),
    ]


def starlette() -> Any:
    app = Starlette(routes=_routes())
    of_starlette.add_rate_limits(app, STORE, RULES)
    return app


def asgi() -> Any:
    return RateLimitMiddleware(Starlette(routes=_routes()), STORE, RULES)


def fastapi() -> Any:
    app = FastAPI(openapi_url=None)
    app.get("/open")(_answering("open"))
    app.api_route("/login", methods=["GET", "POST", "OPTIONS"])(_answering("login"))
    app.get("/items/{id}")(_answering("item"))
    app.api_route("/api/{rest:path}", methods=["GET", "POST", "OPTIONS"])(_answering("api"))
    app.api_route("/orders", methods=["GET", "POST"])(_answering("order"))
    of_fastapi.add_rate_limits(app, STORE, RULES)
    return app

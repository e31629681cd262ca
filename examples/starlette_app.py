"""Starlette, one limit for all workers: `uvicorn examples.starlette_app:app --workers 2`, and Redis at STORE."""

import os

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from batchlimit.integrations.starlette import RouteLimit, RouteLimitMiddleware, add_rate_limits, charge_request
from batchlimit.rules import Rule

RULES = [
    Rule("all", "5000/s", key="all"),
    Rule("search", "10/minute", key="search:{ip}", match=None),  # for routes that ask for it
]
SEARCH = RouteLimit("search:{ip}", cost=2)


def search(request: Request) -> PlainTextResponse:
    return PlainTextResponse("found")


async def upload(request: Request) -> PlainTextResponse:
    await charge_request(request, SEARCH)  # raises RefusedRequest, which is answered 429
    return PlainTextResponse("stored")


limited = [Middleware(RouteLimitMiddleware, "search:{ip}")]
app = Starlette(
    routes=[
        Route("/search", search, middleware=limited),
        Route("/upload", upload, methods=["POST"]),
        Mount("/v1", routes=[Route("/search", search)], middleware=limited),
    ]
)
limits = add_rate_limits(app, os.environ.get("STORE", "redis://localhost:6379/0"), RULES)

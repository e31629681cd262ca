"""Litestar, one limit for all workers: `uvicorn examples.litestar_app:app --workers 4`, and Redis at REDIS_URL."""

import os
from typing import Any

from litestar import Controller, Litestar, get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException
from litestar.handlers import BaseRouteHandler
from litestar.params import FromQuery

from batchlimit.integrations.litestar import add_rate_limits, limited
from batchlimit.rules import Rule

USERS = {"secret-of-ann": "ann", "secret-of-bob": "bob"}
Connection = ASGIConnection[Any, Any, Any, Any]

RULES = [
    Rule("all", "5000/s", key="all"),
    Rule("address", "20/s burst 40", key="address:{ip}", match="/api/*"),
    Rule("login", "5/minute", key="login:{ip}", match="POST /login", charge=[401]),  # only failed ones
    Rule("search", "10/minute", key="search:{user}", match=None),  # for handlers that ask for it
]


def logged_in(connection: Connection, handler: BaseRouteHandler) -> None:
    """Let only users in."""
    if connection.headers.get("x-api-key") not in USERS:
        raise NotAuthorizedException


def by_user(connection: Connection) -> dict[str, str]:
    """Return the values for keys that a handler knows."""
    return {"user": USERS[connection.headers["x-api-key"]]}


class Api(Controller):
    """What users may ask."""

    path = "/api"
    guards = [logged_in]  # noqa: RUF012

    @get("/search", guards=[limited("search:{user}", identify=by_user)])
    async def search(self, q: FromQuery[str]) -> list[str]:
        """Search: one token."""
        return [q]

    @get("/report", guards=[limited("search:{user}", cost=5, identify=by_user)])
    async def report(self) -> str:
        """Report: five tokens of the same bucket."""
        return "report"


@post("/login", status_code=200)
async def login(password: FromQuery[str]) -> str:
    """Log in."""
    if password != "correct":
        raise NotAuthorizedException
    return "welcome"


@get("/limits")
async def counts() -> dict[str, Any]:
    """Return what became of the requests of this worker."""
    statistics = limits.statistics()
    return {"requests": statistics.requests, "unmatched": statistics.unmatched}


app = Litestar([Api, login, counts])
limits = add_rate_limits(app, os.environ.get("REDIS_URL", "redis://localhost:6379/0"), RULES)

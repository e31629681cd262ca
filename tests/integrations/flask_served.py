"""A Flask application for gunicorn: its store stands in the environment."""

import os
from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Flask, Response, jsonify, request

from batchlimit import RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations.flask import Limits
from batchlimit.rules import Rule, Rules

RULES = Rules(
    [
        Rule("burst", "7/hour", key="burst:{user}", match="/inner/*"),
        Rule("search", "10/hour", key="search:{user}", match=None),
        Rule(
            "bytes",
            "100/day",
            key="bytes:{user}",
            match="/stream/*",
            cost=50,
            charge=lambda response: min(response.sent, 90),
        ),
        Rule("broken", "100/hour", key="broken:{user}", match="/fails", charge=["5xx"]),
    ]
)


def open_limiter() -> RateLimiter:
    url, prefix = os.environ["STORE"], os.environ["PREFIX"]
    patience: dict[str, Any] = {"deadline": 30.0, "connect_timeout": 30.0}
    return RateLimiter.from_url(url, RULES.quotas, prefix=prefix, sizer=FixedBatch(1), **patience)


app = Flask(__name__)
limits = Limits(open_limiter, RULES, app, identify=lambda native: {"user": native.headers.get("x-user")})
blueprint = Blueprint("all", __name__)


@blueprint.get("/inner/<name>")
def hello(name: str) -> str:
    return name


@blueprint.get("/search")
@limits.limited("search:{user}", cost=2)
def search() -> str:
    return "found"


@blueprint.get("/stream/<how>")
def stream(how: str) -> Response:
    def parts() -> Iterator[bytes]:
        for number in range(3):
            yield b"%d" % number * 10
            while how == "endless":
                yield b"x" * 65536
        if how == "broken":
            raise ZeroDivisionError

    return Response(parts())


@blueprint.get("/fails")
def fails() -> str:
    raise ZeroDivisionError


@blueprint.get("/left")
def left() -> Response:
    limiter: Any = app.extensions["batchlimit"].enforcer._limiter()
    return jsonify(limiter.peek(request.args["key"]).remaining)


app.register_blueprint(blueprint)

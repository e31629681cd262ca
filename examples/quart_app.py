"""A shop in Quart: `hypercorn examples.quart_app:app`, with Redis at STORE."""

import os
from typing import Any

from quart import Blueprint, Quart, Response, g, request, websocket

from batchlimit.integrations.quart import Limits, Rejected, limit_blueprint, limited
from batchlimit.rules import Rule

rules = [
    Rule("all", "5000/s", key="all"),
    Rule("login", "5/minute", key="login:{ip}", match="POST /login", charge=[401]),  # only failed logins
    Rule("search", "4/minute", key="search:{user}", match=None),  # for views that ask for it
    Rule("reports", "2/minute", key="reports:{user}", match=None),
]
messages = [Rule("chat", "20/minute", key="chat:{ip}", match="/chat")]

app = Quart(__name__)
limits = Limits(os.environ.get("STORE", "redis://localhost:6379/0"), rules, app, messages=messages)
reports = Blueprint("reports", __name__, url_prefix="/reports")


@app.before_request
async def who() -> None:
    g.user = request.headers.get("X-User", "nobody")


def by_user(connection: Any) -> dict[str, str]:
    return {"user": g.user}


limit_blueprint(reports, "reports:{user}", identify=by_user)


@app.get("/search")
@limited("search:{user}", cost=2, identify=by_user)
async def search() -> str:
    return "found\n"


@reports.get("/<name>")
async def report(name: str) -> str:
    return f"{name}\n"


@app.post("/login")
async def login() -> Response:
    form = await request.form
    return Response("", 204 if form.get("password") == "open sesame" else 401)


@app.websocket("/chat")
async def chat() -> None:
    while True:
        await websocket.send(await websocket.receive())


@app.errorhandler(429)
async def too_many(refused: Rejected) -> tuple[str, int]:
    return f"{', '.join(refused.refusal.rules)}: too many requests\n", 429


app.register_blueprint(reports)

"""A shop in Flask: `gunicorn examples.flask_app:app`, with Redis at STORE."""

import os

from flask import Flask, Response, g, request

from batchlimit.integrations.flask import Limits, Rejected
from batchlimit.rules import Rule

app = Flask(__name__)

rules = [
    Rule("all", "5000/s", key="all"),
    Rule("login", "5/minute", key="login:{ip}", match="POST /login", charge=[401]),  # only failed logins
    Rule("search", "4/minute", key="search:{user}", match=None),  # for views that ask for it
]


@app.before_request  # before the limits: `identify` reads what it puts into g
def who() -> None:
    g.user = request.headers.get("X-User", "nobody")


limits = Limits(os.environ.get("STORE", "redis://localhost:6379/0"), rules, app, identify=lambda _: {"user": g.user})


@app.get("/search")
@limits.limited("search:{user}", cost=2)
def search() -> str:
    return "found\n"


@app.post("/login")
def login() -> Response:
    return Response("", 204 if request.form.get("password") == "open sesame" else 401)


@app.errorhandler(429)
def too_many(refused: Rejected) -> tuple[str, int]:
    return f"{', '.join(refused.refusal.rules)}: too many requests\n", 429

"""Routes of Flask."""

from typing import Any

from flask import Flask, request

from batchlimit.integrations.flask import Limits
from batchlimit.integrations.wsgi import RateLimitMiddleware
from tests.integrations.targets.apps import RULES, STORE, served


def _app() -> Flask:
    app = Flask(__name__)

    def add(path: str, name: str, methods: list[str]) -> None:
        def answer(**told: str) -> Any:
            return "here", served(name, request.method)

        app.add_url_rule(path, path, answer, methods=methods)

    add("/open", "open", ["GET"])
    add("/login", "login", ["GET", "POST", "OPTIONS"])
    add("/items/<id>", "item", ["GET"])
    add("/api", "api", ["GET"])
    add("/api/<path:rest>", "api", ["GET", "POST"])
    add("/orders", "order", ["GET", "POST"])
    return app


def flask() -> Any:
    app = _app()
    Limits(STORE, RULES, app)
    return app


def wsgi() -> Any:
    return RateLimitMiddleware(_app().wsgi_app, STORE, RULES)

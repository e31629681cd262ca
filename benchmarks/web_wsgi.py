"""A Flask application behind each limiter, and a caller that has no sockets."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from io import BytesIO
from typing import Any

from flask import Flask

from batchlimit import RateLimiter
from batchlimit.integrations.flask import Limits
from batchlimit.integrations.wsgi import RateLimitMiddleware
from batchlimit.rules import Rule, Rules
from benchmarks.web_floor import on_wsgi
from benchmarks.web_rules import FLOOR_OF_FOUR, FLOOR_OF_ONE, FOUR, ONE, PATH, PLENTY, USER, of_environ

App = Callable[[Any, Any], Iterable[bytes]]
Opened = AbstractContextManager[App]


def item(id: int) -> str:  # noqa: A002
    """Answer at once."""
    return "hello"


def flask(endpoint: Any = item) -> Flask:
    """Return an application of one route."""
    app = Flask("benchmark")
    app.add_url_rule("/api/items/<int:id>", view_func=endpoint)
    return app


@contextmanager
def alone() -> Iterator[App]:
    """Without a limiter."""
    yield flask().wsgi_app


@contextmanager
def ours(url: str, rules: list[Rule]) -> Iterator[App]:
    """Behind our middleware."""
    with RateLimiter.from_url(url, Rules(rules).quotas, deadline=5.0) as limiter:
        yield RateLimitMiddleware(flask().wsgi_app, limiter, rules, identify=of_environ, checks=False)


@contextmanager
def extension(url: str, rules: list[Rule]) -> Iterator[App]:
    """With our extension."""
    app = flask()
    with RateLimiter.from_url(url, Rules(rules).quotas, deadline=5.0) as limiter:
        Limits(limiter, rules, app, identify=of_environ, checks=False)
        yield app.wsgi_app


@contextmanager
def floor(rules: list[Rule]) -> Iterator[App]:
    """With constant fields, and no limiter."""
    yield on_wsgi(flask().wsgi_app, rules)


@contextmanager
def flask_limiter(url: str, limits: int) -> Iterator[App]:
    """With this many limits of Flask-Limiter on the route, and its header fields."""
    from flask_limiter import Limiter
    from flask_limiter.util import get_remote_address

    app = Flask("benchmark")
    limiter = Limiter(
        get_remote_address, app=app, storage_uri=url.replace("unix://", "redis+unix://"), headers_enabled=True
    )
    endpoint: Any = item
    for number in range(limits):
        endpoint = limiter.shared_limit(f"{PLENTY}/second", scope=f"limit-{number}")(endpoint)
    app.add_url_rule("/api/items/<int:id>", view_func=endpoint)
    yield app.wsgi_app


def stacks(url: str) -> dict[str, Opened]:
    """Return an application of Flask behind each."""
    return {
        "no limiter": alone(),
        FLOOR_OF_ONE: floor(ONE),
        FLOOR_OF_FOUR: floor(FOUR),
        "batchlimit, 1 rule": ours(url, ONE),
        "batchlimit, 4 rules": ours(url, FOUR),
        "batchlimit, 1 rule, extension": extension(url, ONE),
        "batchlimit, 4 rules, extension": extension(url, FOUR),
        "Flask-Limiter, 1 limit": flask_limiter(url, 1),
        "Flask-Limiter, 4 limits": flask_limiter(url, 4),
    }


def entered(stack: ExitStack, opened: dict[str, Opened]) -> dict[str, App]:
    """Open them all."""
    return {name: stack.enter_context(each) for name, each in opened.items()}


def serve(app: App, requests: int) -> None:
    """Have requests answered, one after the other."""
    for _ in range(requests):
        body = app(_environ(), _start_response)
        b"".join(body)
        if (close := getattr(body, "close", None)) is not None:
            close()


def _start_response(status: str, _headers: Any, _exc_info: Any = None) -> Callable[[bytes], object]:
    """Take the status; a refusal or an error would be measured as if it were fast."""
    if not status.startswith("200"):
        raise AssertionError(f"no 200: {status}")
    return lambda _data: None


def _environ() -> dict[str, Any]:
    """Return a request, as a server makes one for each."""
    return {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": PATH,
        "QUERY_STRING": "",
        "SERVER_NAME": "api.example",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "192.0.2.1",
        "HTTP_HOST": "api.example",
        "HTTP_X_USER": USER.decode(),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(),
        "wsgi.errors": BytesIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }

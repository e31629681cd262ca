"""The same routes in Flask, Django and aiohttp, each behind the rules in its own manner."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, HttpResponseNotModified, HttpResponseRedirect, StreamingHttpResponse
from django.test.utils import override_settings
from django.urls import include, path, re_path
from django.views.decorators.http import require_http_methods
from django.views.static import serve
from flask import Blueprint, Flask, redirect
from flask import Response as FlaskResponse

from batchlimit.integrations import aiohttp, django, flask, wsgi
from batchlimit.integrations.django.configuration import async_front
from tests.integrations import django_site
from tests.integrations.charged.asgi_faces import FILES, endless, parts
from tests.integrations.charged.behind import KEY, OFF_KEY, Behind


def some() -> Iterator[bytes]:
    for _ in range(3):
        yield b"x" * 10


def without_an_end() -> Iterator[bytes]:
    while True:
        yield b"x" * 1000


def same_view(view: Any) -> Any:
    return view


def _flask(limited: Any, off: Any) -> Flask:
    app, below = (
        Flask(__name__, static_folder=FILES, static_url_path="/static"),
        Blueprint("below", __name__, url_prefix="/below"),
    )

    def item() -> Any:
        return "item"

    def moved() -> Any:
        return redirect("/item")

    def same() -> Any:
        return "", 304

    def broken() -> Any:
        raise ZeroDivisionError

    def later() -> Any:
        response = FlaskResponse("later")
        response.call_on_close(lambda: None)
        return response

    def stream() -> Any:
        return FlaskResponse(some())

    def without_end() -> Any:
        return FlaskResponse(without_an_end())

    for view in (item, moved, same, broken, later, stream):
        app.add_url_rule(f"/{view.__name__}", view.__name__, limited(view))
    app.add_url_rule("/endless", "endless", limited(without_end))
    app.add_url_rule("/folder/", "folder", limited(item))
    app.add_url_rule("/form", "form", limited(item), methods=["POST"])
    app.add_url_rule("/off", "off", off(item))
    below.add_url_rule("/item", "item", limited(item))
    app.register_blueprint(below)
    return app


def with_flask(behind: Behind) -> tuple[Any, Any]:
    held = flask.Limits(behind.make, behind.rules, identify=lambda request: {"user": request.headers["x-user"]})
    app = _flask(held.limited(KEY), held.limited(OFF_KEY))
    held.init_app(app)
    return app, lambda: held.statistics(app)


def with_wsgi(behind: Behind) -> tuple[Any, Any]:
    """Any WSGI application; here it is one of Flask, whose routes ask for nothing."""
    app = _flask(same_view, same_view)
    held = wsgi.RateLimitMiddleware(
        app, behind.make, behind.rules, identify=lambda environ: {"user": environ["HTTP_X_USER"]}
    )
    return held, held.statistics


def _item(request: Any, **_: Any) -> HttpResponse:
    return HttpResponse("item")


def _moved(request: Any) -> HttpResponse:
    return HttpResponseRedirect("/item")


def _same(request: Any) -> HttpResponse:
    return HttpResponseNotModified()


def _broken(request: Any) -> HttpResponse:
    raise ZeroDivisionError


def _stream(request: Any) -> StreamingHttpResponse:
    return StreamingHttpResponse(some())


def _without_end(request: Any) -> StreamingHttpResponse:
    return StreamingHttpResponse(without_an_end())


async def _stream_async(request: Any) -> StreamingHttpResponse:
    return StreamingHttpResponse(parts())


async def _without_end_async(request: Any) -> StreamingHttpResponse:
    return StreamingHttpResponse(endless())


limited = django.limited(KEY)
STREAMS = [path("stream", limited(_stream)), path("endless", limited(_without_end))]
ASYNC_STREAMS = [path("stream", limited(_stream_async)), path("endless", limited(_without_end_async))]
ROUTES = [
    path("item", limited(_item)),
    path("moved", limited(_moved)),
    path("same", limited(_same)),
    path("broken", limited(_broken)),
    path("folder/", limited(_item)),
    path("form", require_http_methods(["POST"])(limited(_item))),
    path("off", django.limited(OFF_KEY)(_item)),
    path("below/", include([path("item", limited(_item))])),
    re_path("^static/(?P<path>.*)$", serve, {"document_root": FILES}),
]


@contextmanager
def _project(behind: Behind, streams: list[Any]) -> Iterator[Any]:
    mine = {"LIMITER": behind.make, "ASYNC_LIMITER": behind.make_async, "RULES": behind.rules}
    slashes = "django.middleware.common.CommonMiddleware"
    with override_settings(
        BATCHLIMIT={**mine, "IDENTIFY": django_site.who},
        ROOT_URLCONF=(*ROUTES, *streams),
        MIDDLEWARE=[django_site.MIDDLEWARE, slashes],
    ):
        yield django.middleware.statistics


@contextmanager
def with_django(behind: Behind) -> Iterator[tuple[Any, Any]]:
    with _project(behind, STREAMS) as statistics:
        yield get_wsgi_application(), statistics


@contextmanager
def with_django_asgi(behind: Behind) -> Iterator[tuple[Any, Any]]:
    with _project(behind, ASYNC_STREAMS) as statistics:
        behind.closing.append(lambda: async_front().close())
        yield get_asgi_application(), statistics


def with_aiohttp(behind: Behind) -> tuple[Any, Any]:
    asked = aiohttp.limited(KEY)

    @asked
    async def item(request: web.Request) -> web.StreamResponse:
        return web.Response(text="item")

    @asked
    async def moved(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/item")

    @asked
    async def same(request: web.Request) -> web.StreamResponse:
        return web.Response(status=304)

    @asked
    async def broken(request: web.Request) -> web.StreamResponse:
        raise ZeroDivisionError

    @asked
    async def stream(request: web.Request) -> web.StreamResponse:
        return web.Response(body=parts())

    @asked
    async def without_end(request: web.Request) -> web.StreamResponse:
        return web.Response(body=endless())

    @asked
    async def echo(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    async def refused(request: web.Request) -> web.StreamResponse:
        return web.Response(text="item")

    app, below = web.Application(middlewares=[web.normalize_path_middleware()]), web.Application()
    views = {"/item": item, "/moved": moved, "/same": same, "/broken": broken, "/stream": stream, "/ws": echo}
    for route, view in {**views, "/endless": without_end, "/folder/": item}.items():
        app.router.add_get(route, view)
    app.router.add_post("/form", item)
    app.router.add_get("/off", aiohttp.limited(OFF_KEY)(refused))
    app.router.add_static("/static", FILES)
    below.router.add_get("/item", item)
    app.add_subapp("/below", below)
    held = aiohttp.Limits(
        behind.make_async,
        behind.rules,
        identify=lambda request: {"user": request.headers["x-user"]},
        messages=behind.messages,
    )
    held.setup(app)
    return app, held.statistics

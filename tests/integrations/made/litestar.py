"""Handlers of Litestar: guards of a handler, of a controller, of a router; a middleware for websockets."""

from collections.abc import Iterator, Sequence
from typing import Any

from litestar import Controller, Litestar, MediaType, Request, Response, Router, WebSocket, route, websocket
from litestar.background_tasks import BackgroundTask
from litestar.exceptions import WebSocketDisconnect
from litestar.response import Stream
from litestar.static_files import create_static_files_router

from batchlimit.integrations.litestar import add_rate_limits, limited, route_limit
from tests.integrations.made import Made, Said, View, done, user_of


def application(views: Sequence[View], files: str | None = None) -> Litestar:
    """Make an application."""
    handlers: list[Any] = [_handler(view) for view in views if not view.within]
    handlers += [*_included(views), *_mounted(views)]
    if files is not None:
        handlers.append(create_static_files_router("/static", [files]))
    return Litestar(handlers, openapi_config=None, logging_config=None)


def made(views: Sequence[View], source: Any, rules: Any, *, files: str | None = None, **options: Any) -> Made:
    """Make an application behind rules."""
    app = application(views, files)
    return app, add_rate_limits(app, source, rules, **{"identify": user_of, **options}).statistics


def _included(views: Sequence[View]) -> Iterator[Any]:
    for number, view in enumerate(each for each in views if each.within == "included"):
        here: Any = {"path": "/included", "guards": _guards(view), "handler": _handler(view)}
        yield type(f"Included{number}", (Controller,), here)


def _mounted(views: Sequence[View]) -> Iterator[Any]:
    for view in (each for each in views if each.within == "mounted"):
        yield Router("/mounted", route_handlers=[_handler(view)], guards=_guards(view))


def _guards(view: View) -> list[Any]:
    return [] if view.key is None else [limited(view.key, charge=view.charge, identify=view.identify)]


def _handler(view: View) -> Any:
    if view.answer is None:
        limits: Any = [] if view.key is None else [route_limit(view.key)]
        return websocket(view.path, middleware=limits)(_echo)
    answer = view.answer

    async def endpoint(request: Request[Any, Any, Any]) -> Response[Any]:
        return _response(answer(request, **request.path_params))

    async def method(self: Any, request: Request[Any, Any, Any]) -> Response[Any]:
        return await endpoint(request)

    def in_thread(request: Request[Any, Any, Any]) -> Response[Any]:
        return _response(answer(request, **request.path_params))

    options: Any = {"http_method": list(view.methods), "guards": [] if view.within else _guards(view)}
    path = view.written(r"{\1:\2}", r"{\1:str}")
    if view.in_thread:
        return route(path, sync_to_thread=True, **options)(in_thread)
    return route(path, **options)(method if view.within == "included" else endpoint)


def _response(said: Said) -> Response[Any]:
    if said.stream:
        return Stream(said.async_parts(), media_type="text/plain", status_code=200)
    later = BackgroundTask(done) if said.later else None
    return Response(
        said.text, media_type=MediaType.TEXT, status_code=said.status, headers=said.fields, background=later
    )


async def _echo(socket: WebSocket[Any, Any, Any]) -> None:
    await socket.accept()
    try:
        while True:
            await socket.send_text(await socket.receive_text())
    except WebSocketDisconnect:
        return

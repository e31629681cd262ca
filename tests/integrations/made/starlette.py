"""Routes of Starlette: one with parameters, or a websocket, asks in its endpoint, the others by a middleware."""

from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route, Router, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.integrations.starlette import RouteLimit, RouteLimitMiddleware, add_rate_limits, charge_request
from tests.integrations.made import Made, Said, View, done, user_of


def response(said: Said) -> Response:
    if said.stream:
        return StreamingResponse(said.async_parts(), media_type="text/plain")
    later = BackgroundTask(done) if said.later else None
    return Response(said.text, said.status, said.fields, "text/plain", later)


async def echoing(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text)


def application(views: Sequence[View], files: str | None = None) -> Starlette:
    routes: dict[str, list[BaseRoute]] = {"": [], "included": [], "mounted": []}
    for view in views:
        routes[view.within].append(_route(view))
    of_group = next((_limits(view) for view in views if view.within == "included"), [])
    below: list[BaseRoute] = [
        Mount("/included", Router(routes["included"]), middleware=of_group),
        Mount("/mounted", Starlette(routes=routes["mounted"])),
    ]
    static: list[BaseRoute] = [Mount("/static", StaticFiles(directory=files))] if files else []
    return Starlette(routes=[*routes[""], *below, *static])


def made(views: Sequence[View], source: Any, rules: Any, *, files: str | None = None, **options: Any) -> Made:
    """Make an application behind rules."""
    app = application(views, files)
    return app, add_rate_limits(app, source, rules, **{"identify": user_of, **options}).statistics


def made_around(views: Sequence[View], source: Any, rules: Any, *, files: str | None = None, **options: Any) -> Made:
    """Make one behind the middleware of any ASGI application."""
    held = RateLimitMiddleware(application(views, files), source, rules, **{"identify": user_of, **options})
    return held, held.statistics


def _limits(view: View) -> list[Middleware]:
    return [Middleware(RouteLimitMiddleware, view.key, charge=view.charge)] if view.key is not None else []


def _route(view: View) -> BaseRoute:
    limit = None if view.key is None else RouteLimit(view.key, charge=view.charge)
    if view.answer is None:

        async def talk(websocket: WebSocket) -> None:
            if limit is not None:
                await charge_request(websocket, limit)
            await echoing(websocket)

        return WebSocketRoute(view.path, talk)
    answer = view.answer

    async def endpoint(request: Request) -> Response:
        if limit is not None and asks_itself:
            await charge_request(request, limit, None if view.identify is None else view.identify(request))
        return response(answer(request, **request.path_params))

    def in_thread(request: Request) -> Response:
        return response(answer(request, **request.path_params))

    asks_itself = "{" in view.path or view.identify is not None
    middleware = [] if asks_itself or view.within == "included" else _limits(view)
    return Route(view.path, in_thread if view.in_thread else endpoint, methods=view.methods, middleware=middleware)

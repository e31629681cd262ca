"""Handlers of aiohttp: a decorator, in subapplications too."""

from collections.abc import Sequence
from typing import Any

from aiohttp import web

from batchlimit.integrations.aiohttp import Limits, limited
from tests.integrations.made import Made, View, user_named


def made(views: Sequence[View], source: Any, rules: Any, *, files: str | None = None, **options: Any) -> Made:
    """Make an application behind rules."""
    app, mounted = web.Application(middlewares=[web.normalize_path_middleware()]), web.Application()
    for view in views:
        where, prefix = (mounted, "") if view.within == "mounted" else (app, f"/{view.within}".rstrip("/"))
        handler = _handler(view)
        if view.key is not None:
            handler = limited(view.key, charge=view.charge)(handler)
        for method in view.methods:
            if method == "GET":
                where.router.add_get(prefix + _path(view), handler)
            else:
                where.router.add_route(method, prefix + _path(view), handler)
    app.add_subapp("/mounted", mounted)
    if files is not None:
        app.router.add_static("/static", files)
    held = Limits(source, rules, **{"identify": user_named, **options})
    held.setup(app)
    return app, held.statistics


def _path(view: View) -> str:
    return view.written(r"{\1:\2}", r"{\1}").replace(":path}", ":.*}").replace(":int}", ":[0-9]+}")


def _handler(view: View) -> Any:
    if view.answer is None:
        return echo
    answer = view.answer

    async def handler(request: web.Request) -> web.StreamResponse:
        said = answer(request, **request.match_info)
        if said.status == 302:
            raise web.HTTPFound(said.fields["location"])
        if said.status == 401:
            raise web.HTTPUnauthorized
        if said.stream == "endless":
            return web.Response(body=said.async_parts())
        if not said.stream:
            return web.Response(text=said.text, status=said.status, headers=said.fields)
        response = web.StreamResponse()
        await response.prepare(request)
        async for part in said.async_parts():
            await response.write(part)
        return response

    return handler


async def echo(request: web.Request) -> web.WebSocketResponse:
    websocket = web.WebSocketResponse()
    await websocket.prepare(request)
    async for message in websocket:
        await websocket.send_str(message.data)
    return websocket

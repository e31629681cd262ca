"""A plain ASGI application: a table of routes."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from batchlimit.integrations.asgi import RateLimitMiddleware, RouteLimitMiddleware
from tests.integrations.asgi import echo, lifespan, part, start
from tests.integrations.made import Made, View, user_of


def _endpoint(view: View) -> Any:
    async def endpoint(scope: Any, receive: Any, send: Any) -> None:
        if view.answer is None:
            await echo(receive, send)
            return
        said = view.answer(scope, **scope["path_params"])
        gone: Any = None
        if said.stream == "endless":
            await receive()
            gone = asyncio.ensure_future(receive())
        await send(start(said.status))
        if said.stream:
            async for each in said.async_parts():
                if gone is not None and gone.done():
                    return
                await send(part(each, more=True))
        await send(part(said.text.encode()))

    if view.key is None:
        return endpoint
    return RouteLimitMiddleware(endpoint, view.key, charge=view.charge, identify=view.identify)


def made(views: Sequence[View], source: Any, rules: Any, **options: Any) -> Made:
    """Make an application behind rules."""
    routes = [
        (re.compile(f"/{view.within}".rstrip("/") + view.written(r"(?P<\1>[^/]*)", r"(?P<\1>[^/]*)")), _endpoint(view))
        for view in views
    ]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        for path, endpoint in routes:
            if (found := path.fullmatch(scope["path"])) is not None:
                await endpoint({**scope, "path_params": found.groupdict()}, receive, send)
                return
        await send(start(404))
        await send(part(b""))

    held = RateLimitMiddleware(app, source, rules, **{"identify": user_of, **options})
    return held, held.statistics

"""Routes of FastAPI: a dependency of the route, of the router that includes it, or of a mounted application."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.requests import HTTPConnection
from fastapi.responses import PlainTextResponse
from starlette.staticfiles import StaticFiles

from batchlimit.integrations.fastapi import add_exception_handlers, add_rate_limits, limited, responses
from tests.integrations.made import Made, View, user_of
from tests.integrations.made.starlette import echoing, response


def made(views: Sequence[View], source: Any, rules: Any, *, files: str | None = None, **options: Any) -> Made:
    """Make an application behind rules."""
    app, mounted = [FastAPI(responses=responses(), default_response_class=PlainTextResponse) for _ in range(2)]
    inner = APIRouter()
    for view in views:
        _add(view, {"": app, "included": inner, "mounted": mounted}[view.within])
    of_group = next((_limits(view) for view in views if view.within == "included"), [])
    included = APIRouter(prefix="/included", dependencies=of_group)
    included.include_router(inner)
    app.include_router(included)
    app.mount("/mounted", mounted)
    if files is not None:
        app.mount("/static", StaticFiles(directory=files))
    add_exception_handlers(mounted)
    return app, add_rate_limits(app, source, rules, **{"identify": user_of, **options}).statistics


def _limits(view: View) -> list[Any]:
    if view.key is None:
        return []
    who = view.identify
    if who is None:
        return [Depends(limited(view.key, charge=view.charge))]

    def told(connection: HTTPConnection) -> dict[str, str]:
        return who(connection)

    return [Depends(limited(view.key, charge=view.charge, identify=told))]


def _add(view: View, where: Any) -> None:
    limits = [] if view.within == "included" else _limits(view)
    if view.answer is None:
        where.websocket(view.path, dependencies=limits)(echoing)
        return
    answer = view.answer

    async def endpoint(request: Request) -> Any:
        said = answer(request, **request.path_params)
        is_plain = not (said.stream or said.later or said.fields) and said.status == 200
        return said.text if is_plain else response(said)

    def in_thread(request: Request) -> Any:
        return answer(request, **request.path_params).text

    add = where.api_route(view.path, methods=list(view.methods), dependencies=limits)
    add(in_thread if view.in_thread else endpoint)

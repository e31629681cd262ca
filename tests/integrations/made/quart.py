"""Views of Quart: a decorator, below blueprints too, and a limit of a blueprint."""

from collections.abc import Sequence
from typing import Any

from quart import Blueprint, Quart, Response, request, websocket

from batchlimit.integrations.quart import Limits, limit_blueprint, limited, name_operations
from tests.integrations.made import Made, Said, View, done, user_of


def application(views: Sequence[View], files: str | None = None) -> Quart:
    """Make an application."""
    app = Quart(__name__, static_folder=files, static_url_path="/static")
    included, mounted = Blueprint("included", __name__, url_prefix="/included"), Blueprint("mounted", __name__)
    for view in views:
        if view.within == "included" and view.key is not None:
            limit_blueprint(included, view.key, charge=view.charge)
        _add(view, app, {"": app, "included": included, "mounted": mounted}[view.within])
    outer = Blueprint("outer", __name__, url_prefix="/mounted")
    outer.register_blueprint(mounted)
    app.register_blueprint(included)
    app.register_blueprint(outer)
    return app


def made(views: Sequence[View], source: Any, rules: Any, *, files: str | None = None, **options: Any) -> Made:
    """Make an application behind rules."""
    app = application(views, files)
    held = Limits(source, rules, app, **{"identify": user_of, **options})
    name_operations(app)
    return app, lambda: held.statistics(app)


def _add(view: View, app: Quart, where: Any) -> None:
    asks = view.key is not None and view.within != "included"
    limit: Any = limited(str(view.key), charge=view.charge, identify=view.identify) if asks else lambda each: each
    if view.answer is None:
        where.websocket(view.path)(limit(_echo))
        return
    answer = view.answer

    async def endpoint(**parameters: Any) -> Any:
        said = answer(request, **parameters)
        if said.later:
            app.add_background_task(done)
        return _response(said)

    def in_thread(**parameters: Any) -> Any:
        return answer(request, **parameters).text

    limited_view = limit(in_thread if view.in_thread else endpoint)
    where.add_url_rule(view.written(), f"view {view.path}", limited_view, methods=view.methods)


def _response(said: Said) -> Any:
    if said.stream:
        return said.async_parts(), {"content-type": "text/plain"}
    return Response(said.text, said.status, said.fields)


async def _echo() -> None:
    await websocket.accept()
    while True:
        await websocket.send(await websocket.receive())

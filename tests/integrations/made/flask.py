"""Views of Flask: a decorator, below blueprints too."""

from collections.abc import Callable, Sequence
from typing import Any

from flask import Blueprint, Flask, Response, request

from batchlimit.integrations.flask import Limits
from batchlimit.integrations.wsgi import RateLimitMiddleware
from tests.integrations.made import Made, Said, View, user_named

Limited = Callable[..., Callable[[Any], Any]]


def application(views: Sequence[View], files: str | None, limited: Limited | None = None) -> Flask:
    """Make an application whose views ask for what they ask for, or for nothing."""
    app = Flask(__name__, static_folder=files, static_url_path="/static")
    included, mounted = Blueprint("included", __name__, url_prefix="/included"), Blueprint("mounted", __name__)
    for view in views:
        if view.answer is not None:  # there are no websockets
            where: Any = {"": app, "included": included, "mounted": mounted}[view.within]
            asks = limited is not None and view.key is not None
            limit = limited(view.key, charge=view.charge) if asks and limited is not None else lambda each: each
            endpoint = limit(_endpoint(view.answer))
            where.add_url_rule(view.written(), f"view {view.path}", endpoint, methods=view.methods)
    outer = Blueprint("outer", __name__, url_prefix="/mounted")
    outer.register_blueprint(mounted)
    app.register_blueprint(included)
    app.register_blueprint(outer)
    return app


def made(views: Sequence[View], source: Any, rules: Any, *, files: str | None = None, **options: Any) -> Made:
    """Make an application behind rules."""
    held = Limits(source, rules, **{"identify": user_named, **options})
    app = application(views, files, held.limited)
    held.init_app(app)
    return app, lambda: held.statistics(app)


def made_around(views: Sequence[View], source: Any, rules: Any, *, files: str | None = None, **options: Any) -> Made:
    """Make one behind the middleware of any WSGI application: its routes ask for nothing."""
    options = {"identify": lambda environ: {"user": environ.get("HTTP_X_USER", "nobody")}, **options}
    held = RateLimitMiddleware(application(views, files), source, rules, **options)
    return held, held.statistics


def _endpoint(answer: Callable[..., Said]) -> Any:
    def endpoint(**parameters: Any) -> Response:
        said = answer(request, **parameters)
        response = Response(said.parts() if said.stream else said.text, said.status, said.fields)
        if said.later:
            response.call_on_close(lambda: None)
        return response

    return endpoint

"""What a request carries in its scope or environ for concurrency limits: its permit, and the route that it is of.

Rate limits import this alone of concurrency limits.
"""

from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchlimit.integrations.permits import ConcurrencyLimit

PERMIT = "batchlimit.permit"
"""Where the scope or the environ of a request has its permit, for `check`, `lost` and `token`."""
OPERATION = "batchlimit.operation"
"""Where the scope or the environ has the template, if the framework does not put it there itself."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"})
"""The others have no name of their own: clients may make up as many as they like."""


def route_of(request: Mapping[str, Any]) -> str:
    """Return the method and the template of the route, such as "GET /users/{id}", once the router has found it.

    It knows FastAPI, Starlette (by the name of the endpoint, as in mounted applications of FastAPI), Litestar and
    Flask. Quart and Django need one line each: `name_operations` and `operation_names` of their packages.

    Args:
        request: the scope of an ASGI request, or the environ of a WSGI request.

    Returns:
        The name; "" if no route is known. There are as many names as routes and methods.

    Example:
        >>> route_of({"method": "GET", "path_template": "/users/{id}"})
        'GET /users/{id}'
    """
    template = request.get(OPERATION) or request.get("path_template")  # the second is Litestar's
    is_mounted = "app_root_path" in request  # there the template is only the part behind the mount
    if not template and not is_mounted and (route := request.get("route")) is not None:  # of FastAPI
        # One that was included has its prefix in the context.
        context = (request.get("fastapi") or {}).get("effective_route_context")
        template = getattr(context or route, "path", "")
    elif not template and (endpoint := request.get("endpoint")) not in (None, request.get("app")):  # of Starlette
        named = endpoint if hasattr(endpoint, "__qualname__") else type(endpoint)
        template = f"{named.__module__}.{named.__qualname__}"
    method = request.get("method") or request.get("REQUEST_METHOD")
    return f"{method} {template}" if template and method in _METHODS else ""


def noting_route(environ: dict[str, Any], start_response: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `start_response` that notes the route of Flask, which forgets its request before the body is read."""

    def start(*args: Any) -> Any:
        if (rule := getattr(environ.get("werkzeug.request"), "url_rule", None)) is not None:
            environ[OPERATION] = rule.rule
        return start_response(*args)

    return start


def give_back_permit(request: MutableMapping[str, Any]) -> None:
    """Give back the permit of a request that rules refuse: its answer tells nothing about the load."""
    if (permit := request.get(PERMIT)) is not None:
        from batchlimit.admission.permit import give_back

        give_back(permit)


def behind(concurrency: "ConcurrencyLimit | None", package: str, app: Any) -> Any:
    """Return an application behind the ConcurrencyLimitMiddleware of a package; None: there is no such limit."""
    if concurrency is None:
        return None
    from batchlimit.integrations.permits import ConcurrencyLimit

    if not isinstance(concurrency, ConcurrencyLimit):
        raise TypeError(f"concurrency is like ConcurrencyLimit(limiter=...), not {concurrency!r}")
    return import_module(f"{package}.concurrency").ConcurrencyLimitMiddleware(app, **vars(concurrency))

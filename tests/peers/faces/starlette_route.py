"""`Starlette.route`, which Starlette 1 has no more and the suite of slowapi needs: a plugin of pytest."""

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette


def _route(app: Starlette, path: str, **options: Any) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        app.add_route(path, function, **options)
        return function

    return decorate


Starlette.route = _route  # type: ignore[attr-defined]

"""operation_names: a concurrency limit before a Django project learns of which route a request is."""

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.utils.decorators import sync_and_async_middleware

from batchlimit.integrations.operation import OPERATION


@sync_and_async_middleware  # type: ignore[untyped-decorator]  # Django has no types
def operation_names(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Tell a ConcurrencyLimitMiddleware before the project the route of each request; named in MIDDLEWARE.

    Args:
        get_response: what Django passes.

    Returns:
        The middleware.

    Example:
        >>> MIDDLEWARE = ["batchlimit.integrations.django.operation_names"]
    """
    if not iscoroutinefunction(get_response):

        def named(request: Any) -> Any:
            response = get_response(request)
            _name(request)
            return response

        return named

    async def named_async(request: Any) -> Any:
        response = await get_response(request)
        _name(request)
        return response

    return named_async


def _name(request: Any) -> None:
    if (match := request.resolver_match) is not None:
        about = request.scope if hasattr(request, "scope") else request.environ
        about[OPERATION] = f"/{match.route}"

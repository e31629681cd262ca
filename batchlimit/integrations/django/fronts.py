"""Rules held against the requests of a Django project: by threads (`Front`) or by tasks (`AsyncFront`)."""

from collections.abc import Awaitable, Callable
from functools import cache
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from batchlimit.integrations.django.configuration import SETTING, configuration
from batchlimit.integrations.front import AsyncFront, Front


def awaitable(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return a function to be awaited: one that may ask Django's database runs in its thread."""
    return function if iscoroutinefunction(function) else sync_to_async(function)


def blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function to be called in a thread."""
    return async_to_sync(function) if iscoroutinefunction(function) else function


@cache
def front() -> Front:
    """Return what asks the limiter from threads. Raises ImproperlyConfigured."""
    found = configuration()
    if found.limiter is None:
        raise ImproperlyConfigured(f"{SETTING} has no LIMITER, which WSGI needs")
    identify = None if found.identify is None else blocking(found.identify)
    return _made(Front, found.limiter, identify)  # type: ignore[no-any-return]


@cache
def async_front() -> AsyncFront:
    """Return what asks the limiter from tasks. Raises ImproperlyConfigured.

    Django has no lifespan: the limiter is made with this, binds to the loop of the first request, and is not closed.
    Its leased tokens return when their lease expires.
    """
    found = configuration()
    if found.async_limiter is None:
        raise ImproperlyConfigured(f"{SETTING} has no ASYNC_LIMITER, which ASGI needs")
    identify = None if found.identify is None else awaitable(found.identify)
    return _made(AsyncFront, found.async_limiter, identify)  # type: ignore[no-any-return]


def _made(kind: Callable[..., Any], limiter: Any, identify: Callable[..., Any] | None) -> Any:
    found = configuration()
    try:
        return kind(limiter, found.rules, identify=identify, **found.options)
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"{SETTING}: {error}") from error


def _forget(*, setting: str, **_: Any) -> None:
    if setting == SETTING:
        front.cache_clear()
        async_front.cache_clear()


setting_changed.connect(_forget, dispatch_uid="batchlimit.fronts")

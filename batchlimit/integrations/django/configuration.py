"""The setting `BATCHLIMIT`, and what asks the limiter by it, from threads or from tasks."""

from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from functools import cache
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from batchlimit.integrations.address import TrustedProxies
from batchlimit.integrations.enforcement import RouteLimit
from batchlimit.integrations.front import AsyncFront, Front
from batchlimit.integrations.headers import Fields
from batchlimit.rules import RuleFile, Rules

SETTING = "BATCHLIMIT"
asked: list[RouteLimit] = []
"""What views ask for, as far as their modules were imported: a file of rules without them is refused."""
_OPTIONS = ("HEADERS", "UNIDENTIFIED", "PROXIES", "IPV6_PREFIX", "CHECKS", "ENABLED")
_FUNCTIONS = ("IDENTIFY", "ON_REJECTED", "LIMITER", "ASYNC_LIMITER")
_NAMES = ("URL", "RULES", "FUNCTIONS", *_FUNCTIONS, *_OPTIONS)


@cache
def configuration() -> Mapping[str, Any]:
    """Return the setting as it is used: its rules made, its functions imported. Raises ImproperlyConfigured."""
    given = getattr(settings, SETTING, None)
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"{SETTING} is not set: nothing is limited; give a dict with URL and RULES")
    for name in given:
        if name not in _NAMES:
            near = get_close_matches(str(name).upper(), _NAMES, 1)
            meant = f": did you mean {near[0]}?" if near else f"; there are {', '.join(_NAMES)}"
            raise ImproperlyConfigured(f"{SETTING} has no {name!r}{meant}")
    if "RULES" not in given:
        raise ImproperlyConfigured(f"{SETTING} has no RULES: give the path of a file, or a list of Rule")
    if ("URL" in given) == ("LIMITER" in given or "ASYNC_LIMITER" in given):
        raise ImproperlyConfigured(f"{SETTING} has a URL, or functions as LIMITER and ASYNC_LIMITER, and not both")
    url, rules = given.get("URL"), given["RULES"]
    if not isinstance(url, str | None):
        raise ImproperlyConfigured(f"{SETTING}: URL is the URL of a store, not {type(url).__name__}")
    try:
        found = {**given, **{name: _function(name, given.get(name)) for name in _FUNCTIONS}}
        if isinstance(given.get("HEADERS"), str):
            Fields(given["HEADERS"])  # raises ValueError for a form that there is not
        if isinstance(given.get("PROXIES"), list | tuple):
            found["PROXIES"] = TrustedProxies(given["PROXIES"])
        if isinstance(rules, list | tuple):
            found["RULES"] = Rules(rules)
        elif not isinstance(rules, Rules | RuleFile):
            functions = given.get("FUNCTIONS", {}).items()
            found["RULES"] = Rules.load(rules, functions={name: _function(name, each) for name, each in functions})
    except ImproperlyConfigured:
        raise
    except Exception as error:
        raise ImproperlyConfigured(f"{SETTING}: {error}") from error
    return found


def _function(name: str, given: Any) -> Any:
    found = import_string(given) if isinstance(given, str) else given
    if found is not None and not callable(found):
        raise ImproperlyConfigured(f"{SETTING}: {name} is a function or the dotted path of one, not {given!r}")
    return found


def awaitable(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return a function to be awaited: one that may ask Django's database runs in its thread."""
    return function if iscoroutinefunction(function) else sync_to_async(function)


def blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function to be called in a thread."""
    return async_to_sync(function) if iscoroutinefunction(function) else function


_KINDS: Any = (Front, "LIMITER", blocking, "WSGI"), (AsyncFront, "ASYNC_LIMITER", awaitable, "ASGI")
fronts: dict[bool, Any] = {}
"""Those that were made, by whether tasks ask."""


def front(is_async: bool) -> Any:
    """Return what asks the limiter, from threads or tasks; nobody closes that of tasks. Raises ImproperlyConfigured."""
    if is_async not in fronts:
        kind, limiter, called, server = _KINDS[is_async]
        found = configuration()
        source, identify = found.get("URL", found[limiter]), found["IDENTIFY"]
        if source is None:
            raise ImproperlyConfigured(f"{SETTING} has no {limiter}, which {server} needs")
        options = {name.lower(): found[name] for name in _OPTIONS if name in found}
        try:
            made = kind(source, found["RULES"], identify=identify and called(identify), **options)
        except (TypeError, ValueError) as error:
            raise ImproperlyConfigured(f"{SETTING}: {error}") from error
        made.enforcer.asking = asked
        fronts[is_async] = made
    return fronts[is_async]


def _forget(*, setting: str, **_: Any) -> None:
    if setting == SETTING:
        configuration.cache_clear()
        fronts.clear()


setting_changed.connect(_forget, dispatch_uid="batchlimit.configuration")

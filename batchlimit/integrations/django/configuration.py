"""The setting `BATCHLIMIT`, and what asks the limiter by it: from threads (`front`) or from tasks (`async_front`)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a project says of its limits.

    Attributes:
        rules: `RULES`: the path of a file, a list of Rule, Rules, or a RuleFile.
        limiter: `URL` of the store, or `LIMITER`, a function that makes a RateLimiter, for WSGI; None: there is none.
        async_limiter: the same `URL`, or `ASYNC_LIMITER`, a function that makes an AsyncRateLimiter, for ASGI.
        identify: `IDENTIFY`, a function of the HttpRequest, which may be asynchronous (default None).
        on_rejected: `ON_REJECTED`, a function of the HttpRequest and the Refusal that returns a response; it may be
            asynchronous (default None: problem details).
        options: `HEADERS`, `UNIDENTIFIED`, `PROXIES`, `IPV6_PREFIX`, `CHECKS`, `ENABLED`, as the other middlewares
            have them.
    """

    rules: RuleFile | Rules
    limiter: Any
    async_limiter: Any
    identify: Callable[..., Any] | None
    on_rejected: Callable[..., Any] | None
    options: Mapping[str, Any]


@cache
def configuration() -> Configuration:
    """Return the configuration of the project. Raises ImproperlyConfigured."""
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
    try:
        return _read(given)
    except ImproperlyConfigured:
        raise
    except Exception as error:
        raise ImproperlyConfigured(f"{SETTING}: {error}") from error


def _read(given: Mapping[str, Any]) -> Configuration:
    functions = {name: _function(name, given.get(name)) for name in _FUNCTIONS}
    options = {name.lower(): given[name] for name in _OPTIONS if name in given}
    if isinstance(options.get("headers"), str):
        Fields(options["headers"])  # raises ValueError for a form that there is not
    if isinstance(options.get("proxies"), list | tuple):
        options["proxies"] = TrustedProxies(options["proxies"])
    url = given.get("URL")
    if url is not None and not isinstance(url, str):
        raise ImproperlyConfigured(f"{SETTING}: URL is the URL of a store, not {type(url).__name__}")
    return Configuration(
        _rules(given["RULES"], given.get("FUNCTIONS", {})),
        functions["LIMITER"] if url is None else url,
        functions["ASYNC_LIMITER"] if url is None else url,
        functions["IDENTIFY"],
        functions["ON_REJECTED"],
        options,
    )


def _rules(given: Any, functions: Mapping[str, Any]) -> RuleFile | Rules:
    if isinstance(given, Rules | RuleFile):
        return given
    if isinstance(given, list | tuple):
        return Rules(given)
    return Rules.load(given, functions={name: _function(name, each) for name, each in functions.items()})


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


@cache
def front() -> Front:
    """Return what asks the limiter from threads. Raises ImproperlyConfigured."""
    made: Front = _made(Front, configuration().limiter, blocking, "LIMITER, which WSGI needs")
    return made


@cache
def async_front() -> AsyncFront:
    """Return what asks the limiter from tasks; without a lifespan nothing closes it. Raises ImproperlyConfigured."""
    made: AsyncFront = _made(AsyncFront, configuration().async_limiter, awaitable, "ASYNC_LIMITER, which ASGI needs")
    return made


def _made(kind: Callable[..., Any], limiter: Any, called: Callable[..., Any], missing: str) -> Any:
    found = configuration()
    if limiter is None:
        raise ImproperlyConfigured(f"{SETTING} has no {missing}")
    try:
        identify = None if found.identify is None else called(found.identify)
        made = kind(limiter, found.rules, identify=identify, **found.options)
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"{SETTING}: {error}") from error
    made.enforcer.asking = asked
    return made


def _forget(*, setting: str, **_: Any) -> None:
    if setting == SETTING:
        for each in (configuration, front, async_front):
            each.cache_clear()


setting_changed.connect(_forget, dispatch_uid="batchlimit.configuration")

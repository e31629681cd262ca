"""Rules held against the requests of a Django project: by threads (`Front`) or by tasks (`AsyncFront`)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from batchlimit.integrations.address import TrustedProxies
from batchlimit.integrations.asgi.lifespan import LimiterHome
from batchlimit.integrations.checks import Checks, ChecksSetting
from batchlimit.integrations.django.configuration import SETTING, configuration
from batchlimit.integrations.enforcement import AsyncEnforcer, Outcome, Response, Unidentified
from batchlimit.integrations.front import Front, is_preflight
from batchlimit.integrations.headers import Fields, Form, Header
from batchlimit.integrations.identity import Addresses, awaited_identity
from batchlimit.rules import Request, Rules


class AsyncFront:
    """Holds rules against the requests of a Django project on an event loop; the arguments are those of Front.

    Django has no lifespan: the limiter is made with this, binds to the loop of the first request, and is not closed.
    Its leased tokens return when their lease expires.
    """

    def __init__(
        self,
        limiter: Any,
        rules: Rules,
        *,
        identify: Callable[..., Any] | None = None,
        headers: Form | Fields = "draft-11",
        proxies: TrustedProxies | None = None,
        ipv6_prefix: int = 56,
        unidentified: Unidentified = "refuse",
        limit_preflight: bool = False,
        checks: ChecksSetting = True,
    ) -> None:
        self._home, found = LimiterHome(limiter, rules), Checks(checks).begin(limiter, rules, ipv6_prefix)
        self.enforcer = AsyncEnforcer(
            self._home.limiter, rules, headers=headers, unidentified=unidentified, checks=found
        )
        self._addresses = Addresses(proxies, ipv6_prefix, checks=found)
        self._identify = None if identify is None else awaitable(identify)
        self._limits_preflight = limit_preflight
        self._settling: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<AsyncFront of {self.enforcer.rules}>"

    async def admit(
        self, method: str, path: str, peer: str | None, headers: Iterable[Header], native: object
    ) -> Outcome:
        """Charge a request to all rules that apply, or to none of them; as Front.admit."""
        headers = tuple(headers)
        known = self._addresses.of(peer, 1, headers)
        root = getattr(native, "script_name", "")
        request = Request(method, path, await awaited_identity(known, self._identify, native), native, root)
        if method == "OPTIONS" and not self._limits_preflight and is_preflight(headers):
            return Outcome(request=request)
        return await self.enforcer.admit(request)

    def settle(self, outcome: Outcome, response: Response, loop: asyncio.AbstractEventLoop) -> None:
        """Have it settled on the loop of its request, from whatever thread; nobody waits for it."""
        if outcome.charges and not loop.is_closed():
            loop.call_soon_threadsafe(self._begin, outcome, response)

    def _begin(self, outcome: Outcome, response: Response) -> None:
        task = asyncio.get_running_loop().create_task(self.enforcer.settle(outcome, response))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)


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
    """Return what asks the limiter from tasks. Raises ImproperlyConfigured."""
    found = configuration()
    if found.async_limiter is None:
        raise ImproperlyConfigured(f"{SETTING} has no ASYNC_LIMITER, which ASGI needs")
    return _made(AsyncFront, found.async_limiter, found.identify)  # type: ignore[no-any-return]


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

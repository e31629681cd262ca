"""The rules held against one request of Django, in threads or in tasks: both are asked from either kind of view."""

import asyncio
from collections.abc import Mapping
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async

from batchlimit.integrations.enforcement import HOLD_NAME, Outcome, Refusal, Response, RouteLimit
from batchlimit.integrations.front import AsyncFront, Front, wanted
from batchlimit.integrations.headers import Header

_FIELDS = [(name.encode(), f"HTTP_{name.upper().replace('-', '_')}") for name in wanted]
_Values = Mapping[str, object]


class Hold:
    """What the rules say of one request, asked by threads (WSGI)."""

    def __init__(self, front: Front, request: Any) -> None:
        self._front = front
        self.outcome = front.admit(*about(request), root=root_of(request))
        self.error: BaseException | None = None
        setattr(request, HOLD_NAME, self)

    def ask(self, limit: RouteLimit, identity: _Values, parameters: _Values) -> Refusal | None:
        """Charge the request to what its view asks for, from a thread; return what refuses it."""
        return self._front.enforcer.ask(limit, self.outcome, identity, parameters)

    async def ask_async(self, limit: RouteLimit, identity: _Values, parameters: _Values) -> Refusal | None:
        """Charge the request to what its view asks for, from a task."""
        return await sync_to_async(self.ask)(limit, identity, parameters)

    def settle(self, response: Response) -> None:
        """Charge what the response says."""
        self._front.settle(self.outcome, response)

    def unanswered(self, refusal: Refusal, error: Exception) -> None:
        """Count an ON_REJECTED that raised, and tell the log."""
        self._front.enforcer.counters.unanswered(refusal.rules, error)


class AsyncHold:
    """What the rules say of one request, asked by tasks (ASGI); made by `of`."""

    def __init__(self, front: AsyncFront, outcome: Outcome) -> None:
        self._front, self.outcome = front, outcome
        self._loop = asyncio.get_running_loop()
        self.error: BaseException | None = None

    @classmethod
    async def of(cls, front: AsyncFront, request: Any) -> "AsyncHold":
        """Hold the rules against a request."""
        found = cls(front, await front.admit(*about(request), root=root_of(request)))
        setattr(request, HOLD_NAME, found)
        return found

    def ask(self, limit: RouteLimit, identity: _Values, parameters: _Values) -> Refusal | None:
        """Charge the request to what its view asks for, from a thread that the loop waits for."""
        return async_to_sync(self.ask_async)(limit, identity, parameters)

    async def ask_async(self, limit: RouteLimit, identity: _Values, parameters: _Values) -> Refusal | None:
        """Charge the request to what its view asks for, from a task."""
        return await self._front.enforcer.ask(limit, self.outcome, identity, parameters)

    def settle(self, response: Response) -> None:
        """Have what the response says charged on the loop of the request, from whatever thread."""
        if self.outcome.charges and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._front.settle, self.outcome, response)

    def unanswered(self, refusal: Refusal, error: Exception) -> None:
        """Count an ON_REJECTED that raised, and tell the log."""
        self._front.enforcer.counters.unanswered(refusal.rules, error)


def hold_of(request: Any) -> Hold | AsyncHold | None:
    """Return what the middleware has made; None: the request has not passed through it."""
    found: Hold | AsyncHold | None = getattr(request, HOLD_NAME, None)
    return found


def held(request: Any) -> Hold | AsyncHold:
    """Return what the middleware has made of a request that is within it."""
    found: Hold | AsyncHold = getattr(request, HOLD_NAME)
    return found


def forget(request: Any) -> None:
    """Part a request from what the middleware has made: only the garbage collector would find the two."""
    delattr(request, HOLD_NAME)


def fields_of(hold: Hold | AsyncHold) -> list[Header]:
    """Return the fields for the response."""
    return hold.outcome.headers if hold.outcome.refusal is None else hold.outcome.refusal.fields


def about(request: Any) -> tuple[str, str, str | None, list[Header], Any]:
    """Return what a Front asks of a request: method, path, peer, header fields, and the request itself."""
    meta = request.META
    fields = [(name, meta[key].encode("latin-1", "replace")) for name, key in _FIELDS if key in meta]
    return request.method, request.path, meta.get("REMOTE_ADDR") or None, fields, request


def root_of(request: Any) -> str:
    """Return where the project is mounted: Django routes by what is below, under WSGI and ASGI."""
    root: str = request.META.get("SCRIPT_NAME", "")
    return root

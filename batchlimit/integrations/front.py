"""The rules before an application: of threads, as WSGI, Flask, Django and gRPC; or of one event loop without ASGI."""

from collections.abc import Callable, Iterable
from typing import Generic, Unpack

from batchlimit import RateLimiter
from batchlimit.integrations.arguments import Arguments, E, FrontOptions, counted
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import AsyncEnforcer, Enforcer, Outcome, Refusal, Response
from batchlimit.integrations.headers import Header
from batchlimit.integrations.identity import awaited_identity, identity_of
from batchlimit.integrations.source import AsyncLimiterSource, LimiterHome, LimiterSource, LimiterSupply
from batchlimit.rules import Request, Rule, RuleFile, Rules
from batchlimit.rules.request import request_of

wanted = ("x-forwarded-for", "forwarded", "origin", "access-control-request-method")
"""The header fields that a front looks at."""


class _Front(Generic[E]):
    """What both APIs share."""

    enforcer: E
    _messages: E | None

    @property
    def limits_messages(self) -> bool:
        """Whether there are rules for messages."""
        return self._messages is not None

    def statistics(self) -> EnforcementStatistics:
        """Return what became of requests and messages so far, by rule, in this process."""
        return counted(self.enforcer, self._messages)


class Front(_Front[Enforcer]):
    """Holds rules against the requests of a threaded application; the arguments are those of WSGI's middleware."""

    def __init__(
        self,
        limiter: LimiterSource,
        rules: RuleFile | Rules | Iterable[Rule],
        *,
        identify: Callable[..., object] | None = None,
        messages: Rules | Iterable[Rule] = (),
        limit_preflight: bool = False,
        **options: Unpack[FrontOptions],
    ) -> None:
        given = Arguments(limiter, rules, messages=messages, **options)
        self.enforcer, self._messages = given.enforcers(Enforcer, LimiterSupply(given.maker(RateLimiter)))
        self._addresses, self._identify = given.addresses, identify if given.enabled else None
        self._limits_preflight = limit_preflight

    def admit(
        self,
        method: str,
        path: str,
        peer: str | None,
        headers: Iterable[Header],
        native: object = None,
        *,
        root: str = "",
        is_answered: bool = False,
        timeout: float | None = 0.0,
    ) -> Outcome:
        """Charge a request to all rules that apply, or to none of them.

        The path is the whole one, percent-decoded once and without the query. Of the header fields those that are
        `wanted` are enough. A CORS preflight is free where the framework answers an OPTIONS request itself
        (`is_answered`): elsewhere it may run a handler. It waits for tokens up to `timeout` (s; None: no limit).
        """
        headers = tuple(headers)
        known = self._addresses.of(peer, 1, headers)
        request = request_of((method, path, identity_of(known, self._identify, native), native, root))
        if is_answered and method == "OPTIONS" and not self._limits_preflight and is_preflight(headers):
            return Outcome(request=request)
        return self.enforcer.admit(request, timeout=timeout)

    def refused_message(self, request: Request | None) -> Refusal | None:
        """Charge a message of a request to the rules for messages; return why it is refused, or None."""
        return None if self._messages is None or request is None else self._messages.admit(request).refusal

    def settle(self, outcome: Outcome, response: Response) -> None:
        """Charge what the response says; a second call does nothing."""
        self.enforcer.settle(outcome, response)


class AsyncFront(_Front[AsyncEnforcer]):
    """Holds rules against the requests of an application on one event loop; `identify` may be asynchronous.

    A limiter that is not its owner's is made by `open` or by the first request, and closed by `close`.
    """

    def __init__(
        self,
        limiter: AsyncLimiterSource,
        rules: RuleFile | Rules | Iterable[Rule],
        *,
        identify: Callable[..., object] | None = None,
        messages: Rules | Iterable[Rule] = (),
        limit_preflight: bool = False,
        **options: Unpack[FrontOptions],
    ) -> None:
        from batchlimit import AsyncRateLimiter

        given = Arguments(limiter, rules, messages=messages, **options)
        self._home = LimiterHome(given.maker(AsyncRateLimiter))
        self.enforcer, self._messages = given.enforcers(AsyncEnforcer, self._home)
        self._addresses, self._identify = given.addresses, identify if given.enabled else None
        self._limits_preflight = limit_preflight
        self.open, self.close = self._home.open, self._home.close

    async def admit(
        self,
        method: str,
        path: str,
        peer: str | None,
        headers: Iterable[Header],
        native: object = None,
        *,
        root: str = "",
        is_answered: bool = False,
        timeout: float | None = 0.0,
    ) -> Outcome:
        """Charge a request to all rules that apply, or to none of them; as Front.admit."""
        headers = tuple(headers)
        known = self._addresses.of(peer, 1, headers)
        request = request_of((method, path, await awaited_identity(known, self._identify, native), native, root))
        if is_answered and method == "OPTIONS" and not self._limits_preflight and is_preflight(headers):
            return Outcome(request=request)
        return await self.enforcer.admit(request, timeout=timeout)

    async def refused_message(self, request: Request | None) -> Refusal | None:
        """Charge a message of a request to the rules for messages; return why it is refused, or None."""
        if self._messages is None or request is None:
            return None
        return (await self._messages.admit(request)).refusal

    def settle(self, outcome: Outcome, response: Response) -> None:
        """Charge what the response says; what has to be awaited, in a task that nobody cancels with the request."""
        if (rest := self.enforcer.settle_ahead(outcome, response)) is not None:
            self._home.settle(rest)


def is_preflight(headers: Iterable[Header]) -> bool:
    """Whether an OPTIONS request with these fields is a CORS preflight."""
    names = {name for name, _ in headers}
    return b"origin" in names and b"access-control-request-method" in names

"""The rules before an application on one event loop that speaks no ASGI: aiohttp and gRPC have this in common."""

from collections.abc import Callable, Iterable
from typing import Unpack

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.arguments import Arguments, FrontOptions, counted
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import AsyncEnforcer, Outcome, Refusal, Response
from batchlimit.integrations.front import is_preflight
from batchlimit.integrations.headers import Header
from batchlimit.integrations.identity import awaited_identity
from batchlimit.integrations.source import AsyncLimiterSource, LimiterHome
from batchlimit.rules import Request, Rule, RuleFile, Rules


class AsyncFront:
    """Holds rules against the requests of an application on one event loop.

    Args:
        limiter: the URL of a store, or a function that makes an AsyncRateLimiter: made by `open` or by the first
            request, closed by `close`. Or an AsyncRateLimiter with the quotas `rules.quotas`, which its owner closes.
        identify: as for Front; it may be asynchronous (default None).
        messages: Rules for each message of a stream or a websocket (default none).
        rules, limit_preflight, options: as for Front.

    Attributes:
        enforcer: the AsyncEnforcer.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import asyncio
        >>> async def main():
        ...     front = AsyncFront("memory://", [Rule("all", "1/hour", key="all:{ip}")])
        ...     admitted = [(await front.admit("GET", "/", "192.0.2.1", [])).refusal is None for _ in range(2)]
        ...     await front.close()
        ...     return admitted
        >>> asyncio.run(main())
        [True, False]
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
        given = Arguments(limiter, rules, messages=messages, **options)
        self._home = LimiterHome(given.maker(AsyncRateLimiter))
        self.enforcer, self._messages = given.enforcers(AsyncEnforcer, self._home)
        self._addresses, self._identify = given.addresses, identify if given.enabled else None
        self._limits_preflight = limit_preflight

    @property
    def limits_messages(self) -> bool:
        """Whether there are rules for messages."""
        return self._messages is not None

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
        """Charge a request to all rules that apply, or to none of them.

        Args:
            method: its method.
            path: its whole path, percent-decoded once and without the query.
            peer: the address of the connection's other end; None: it has none, as a Unix socket.
            headers: names in lower case and values.
            native: the framework's request, for `identify` and for the functions of rules (default None).
            root: where the application is mounted, as for `rules.Request` (default "").
            is_answered: whether the framework answers an OPTIONS request itself: a CORS preflight is free then (default
                False: it is charged, for it may run a handler).
            timeout: seconds to wait for tokens at most; None: no limit (default 0: it does not wait).

        Returns:
            The Outcome; that of a free preflight says nothing.
        """
        headers = tuple(headers)
        known = self._addresses.of(peer, 1, headers)
        request = Request(method, path, await awaited_identity(known, self._identify, native), native, root)
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

    def open(self) -> None:
        """Make the limiter on the running loop, unless there is one."""
        self._home.open()

    async def close(self) -> None:
        """Close the limiter, if it was made here, after what is being settled."""
        await self._home.close()

    def statistics(self) -> EnforcementStatistics:
        """Return what became of requests and messages so far, by rule, in this process."""
        return counted(self.enforcer, self._messages)

"""The limiter of a web application: its owner's, or made by the URL of a store; for threads, and for one event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from batchlimit import FailurePolicy, RateLimiter
from batchlimit.events import log_event
from batchlimit.integrations.checks import Checks
from batchlimit.keyspace.base_limiter import BaseRateLimiter
from batchlimit.rules import Rule, RuleFile, Rules

if TYPE_CHECKING:
    from batchlimit import AsyncRateLimiter

LimiterSource = RateLimiter | str | Callable[[], RateLimiter]
AsyncLimiterSource: TypeAlias = "AsyncRateLimiter | str | Callable[[], AsyncRateLimiter]"
RulesSource = RuleFile | Rules | Iterable[Rule]
L = TypeVar("L", RateLimiter, "AsyncRateLimiter")


DEADLINE = 0.25
"""Seconds that a request waits for the store: on a starved machine a live one takes longer than the 0.05 of a call."""


def check_limiter(limiter: BaseRateLimiter[Any], rules: Rules | RuleFile, checks: Checks) -> None:
    """Check that a limiter goes by the rules; ValueError: it would stay behind when their file changes."""
    if not isinstance(rules, RuleFile):
        checks.compare(rules, limiter.rules)
    elif limiter.rules.file is not rules:
        raise ValueError(
            "this limiter does not go by the file of the rules: make it with the same RuleFile in place of quotas"
        )


class LimiterHome(Generic[L]):
    """The limiter of an application: its owner's, or made here once, at the latest by the first request.

    It connects at its first call: a server may fork before. One of threads is closed when the process ends, one of an
    event loop by `close`. TypeError: no limiter can be made of the source; ValueError: its URL has a typo.
    """

    limiter: L

    def __init__(
        self, kind: type[L], source: L | str | Callable[[], L], rules: Rules | RuleFile, checks: Checks
    ) -> None:
        if not isinstance(source, kind | str) and not callable(source):
            a_kind = f"{'a' if kind is RateLimiter else 'an'} {kind.__name__}"
            given = type(source).__name__
            raise TypeError(f"limiter is {a_kind}, a URL or a function that makes {a_kind}, not {given}")
        self._kind: type[L] = kind
        self._source: Any = source  # mypy cannot tell an L from a function
        self._rules, self._checks, self._lock = rules, checks, threading.Lock()
        self._is_given = isinstance(source, kind)  # by its owner, who closes it
        self._settling: set[asyncio.Task[None]] = set()
        # Made at the start a typo raises there. A function is called later: a server may fork before. So is `from_url`
        # for embedded://, which starts a server.
        if self._is_given or (isinstance(source, str) and not source.startswith("embedded://")):
            self.limiter = self._make()

    def __getattr__(self, name: str) -> L:
        """Make the limiter, which is not there yet: so that each request reads an attribute, and calls nothing."""
        if name != "limiter":
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        with self._lock:
            if name not in vars(self):
                self.limiter = self._make()
            return self.limiter

    def _make(self) -> L:
        if isinstance(self._source, str):
            quotas: Any = self._rules
            options = dict[str, Any](on_failure={"*": FailurePolicy.closed()})
            if isinstance(quotas, Rules):  # a file says the rest as well
                quotas, options = quotas.quotas, {"on_failure": quotas.on_failure, "mode": quotas.mode}
            return self._kind.from_url(self._source, quotas, deadline=DEADLINE, **options)
        limiter: L = self._source if self._is_given else self._source()
        check_limiter(limiter, self._rules, self._checks)
        return limiter

    def settle(self, rest: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run what is left of a charge in a task that nobody cancels with the request; None: the loop is closed."""
        try:
            task = asyncio.get_running_loop().create_task(rest)
        except RuntimeError:  # the loop was closed before the request had ended
            rest.close()
            return None
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        return task

    async def close(self) -> None:
        """Close a limiter that was made here, after what is settling (10 s at most); a next start makes another."""
        if self._settling:
            await asyncio.wait(self._settling, timeout=10.0)
        limiter: Any = None if self._is_given else vars(self).pop("limiter", None)
        if limiter is not None:
            await limiter.close()

    async def close_quietly(self) -> None:
        """Close as `close` does; an error goes to the log."""
        try:
            await self.close()
        except Exception as error:  # noqa: BLE001  the server ends all the same
            log_event("limiter.not_closed", "the limiter was not closed: %s", error, error=error)

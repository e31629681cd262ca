"""Enforcer and AsyncEnforcer: all rules held against one request, for threads and for tasks."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from batchlimit.base.steps import ahead, drive, run
from batchlimit.integrations.enforcement.admission import Enforcement
from batchlimit.integrations.enforcement.outcome import Outcome, Refusal, Response
from batchlimit.integrations.enforcement.plan import RouteLimit
from batchlimit.rules import Request
from batchlimit.rules.request import NOTHING

if TYPE_CHECKING:
    from batchlimit import AsyncRateLimiter, RateLimiter  # noqa: F401  named below


class Enforcer(Enforcement["RateLimiter"]):
    """Holds rules against requests, for threads.

    Args:
        limiter: a RateLimiter whose quotas are those of the rules, `RateLimiter.from_url(url, rules.quotas)`, or a
            function that returns it whenever it is needed.
        rules: the rules, or a RuleFile that is in the limiter too.
        headers, unidentified, checks, enabled: as of RateLimitMiddleware of `batchlimit.integrations.asgi`, with the
            same defaults.
        silence: seconds after which the log has a warning of rules that matched nothing (default 7,200).
        clock: returns seconds (default `time.monotonic`).
        own: returns a limiter that nobody else exports, if there is one now (default None: there is none).

    Raises:
        ValueError: an argument cannot work.

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.rules import Request, Rule, Rules
        >>> rules = Rules([Rule("login", "1/hour", key="login:{ip}", match="POST /login")])
        >>> enforcer = Enforcer(RateLimiter.from_url("memory://", rules.quotas), rules)
        >>> request = Request("POST", "/login", {"ip": "192.0.2.1"})
        >>> enforcer.admit(request).refusal
        >>> enforcer.admit(request).refusal.status
        429
    """

    _event = threading.Event

    def admit(self, request: Request, *, timeout: float | None = 0.0) -> Outcome:
        """Charge a request to all rules that apply, or to none of them.

        Args:
            request: the request.
            timeout: seconds to wait for tokens at most; None: no limit (default 0: it does not wait). A request that
                cannot be admitted in this time is refused at once.

        Returns:
            The Outcome. Nothing is raised, but for what ends the thread.
        """
        begun = self.begin(request, timeout)
        return begun if isinstance(begun, Outcome) else run(begun)

    def ask(
        self, limit: RouteLimit, outcome: Outcome,
        identity: Mapping[str, object] = NOTHING, parameters: Mapping[str, object] = NOTHING,
    ) -> Refusal | None:  # fmt: skip
        """Charge a request to the rule that its route asks for, and to nothing else.

        Args:
            limit: what the route asks for.
            outcome: what `admit` returned for the request. Its fields then tell of the rule too, and its charges are
                settled with the others; those of a refusal tell of the refusal alone.
            identity: values for the key that the route knows, before those of the request (default none).
            parameters: path parameters, after those of the request (default none).

        Returns:
            The Refusal, or None: the request goes on. A key that no rule has is refused with 503, and told in the log.
        """
        found = self.asked(limit, outcome, identity, parameters)
        return found if found is None or isinstance(found, Refusal) else outcome.add(run(found), self.fields)

    def settle(self, outcome: Outcome, response: Response) -> None:
        """Charge what the response says, once its body has ended, however it ended. A second call does nothing.

        Args:
            outcome: what `admit` returned.
            response: the response.
        """
        if outcome.charges:
            run(self._charging.settle(outcome, response))


class AsyncEnforcer(Enforcement["AsyncRateLimiter"]):
    """Holds rules against requests, for the tasks of one event loop; the arguments are those of Enforcer.

    `cost` and `charge` of the rules may be coroutine functions here.

    Args:
        limiter: an AsyncRateLimiter whose quotas are those of the rules, or a function that returns it.
        rules, headers, unidentified, silence, clock, checks, own, enabled: as for Enforcer.

    Example:
        >>> from batchlimit import AsyncRateLimiter
        >>> from batchlimit.rules import Request, Rule, Rules
        >>> rules = Rules([Rule("login", "1/hour", key="login:{ip}", match="POST /login")])
        >>> async with AsyncRateLimiter.from_url("memory://", rules.quotas) as limiter:
        ...     enforcer = AsyncEnforcer(limiter, rules)
        ...     request = Request("POST", "/login", {"ip": "192.0.2.1"})
        ...     [(await enforcer.admit(request)).refusal is None for _ in range(2)]
        [True, False]
    """

    _event = asyncio.Event

    async def admit(self, request: Request, *, timeout: float | None = 0.0) -> Outcome:
        """Charge a request to all rules that apply, or to none of them; as Enforcer.admit."""
        begun = self.begin(request, timeout)
        return begun if isinstance(begun, Outcome) else await drive(begun)

    async def ask(
        self, limit: RouteLimit, outcome: Outcome,
        identity: Mapping[str, object] = NOTHING, parameters: Mapping[str, object] = NOTHING,
    ) -> Refusal | None:  # fmt: skip
        """Charge a request to the rule that its route asks for, and to nothing else; as Enforcer.ask."""
        found = self.asked(limit, outcome, identity, parameters)
        return found if found is None or isinstance(found, Refusal) else outcome.add(await drive(found), self.fields)

    def settle_ahead(self, outcome: Outcome, response: Response) -> Coroutine[Any, Any, None] | None:
        """Settle as far as nothing has to be awaited for it; return what does the rest, None: that was all."""
        return ahead(self._charging.settle(outcome, response)) if outcome.charges else None

    async def settle(self, outcome: Outcome, response: Response) -> None:
        """Charge what the response says; as Enforcer.settle."""
        if (rest := self.settle_ahead(outcome, response)) is not None:
            await rest

"""Enforcer and AsyncEnforcer: all rules held against one request, for threads and for tasks."""

import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal

from batchlimit.base.steps import Steps, ahead, drive, run
from batchlimit.integrations.checks import Checks, ChecksSetting
from batchlimit.integrations.counters import Counters, EnforcementStatistics
from batchlimit.integrations.enforcement.admission import RequestAdmission
from batchlimit.integrations.enforcement.charging import AGAIN, Charging, Settlement
from batchlimit.integrations.enforcement.outcome import Outcome, Refusal, Response, refuse
from batchlimit.integrations.enforcement.plan import RequestPlan
from batchlimit.integrations.enforcement.route import RouteLimit, RouteRules, known_of
from batchlimit.integrations.enforcement.underway import Underway, UnderwayTasks, UnderwayThreads
from batchlimit.integrations.headers import Fields, Form
from batchlimit.integrations.problem import reduced_capacity
from batchlimit.integrations.source import L, check_limiter
from batchlimit.keyspace.base_limiter import BaseRateLimiter
from batchlimit.rules import Request, RuleFile, Rules, RulesError
from batchlimit.rules.file import FileContents, rules_of
from batchlimit.rules.request import NOTHING

if TYPE_CHECKING:
    from batchlimit import AsyncRateLimiter, RateLimiter  # noqa: F401  named below

Unidentified = Literal["refuse", "admit"]
_SILENCE = 7200.0


class _Enforcement(Generic[L]):
    """What both APIs share."""

    _underway: type[Underway[Any]]

    def __init__(
        self,
        limiter: L | Callable[[], L],
        rules: Rules | RuleFile,
        *,
        headers: Form | Fields = "draft-11",
        unidentified: Unidentified = "refuse",
        silence: float = _SILENCE,
        clock: Callable[[], float] = time.monotonic,
        checks: Checks | ChecksSetting = True,
        own: Callable[[], L | None] | None = None,
        enabled: bool = True,
    ) -> None:
        if unidentified not in ("refuse", "admit"):
            raise ValueError(f"unidentified is 'refuse' or 'admit', not {unidentified!r}")
        self._limiter: Callable[[], Any] = limiter if callable(limiter) else lambda: limiter
        self._own: Callable[[], L | None] | None = own
        self.rules: Rules = rules_of(rules)
        self.fields = headers if isinstance(headers, Fields) else Fields(headers)
        self.counters = Counters(self.rules, silence, clock, Checks.of(checks))
        self._settlement = Settlement(self._limiter, self.counters, self._underway())
        charging = Charging(self._limiter, self.counters, self.fields, self._settlement)
        self._admission = RequestAdmission(
            self._limiter, charging, self.counters, admits_unidentified=unidentified == "admit"
        )
        self._asked_for: set[RouteLimit] = set()
        self._enabled = enabled
        self._hold(self.rules)
        if isinstance(limiter, BaseRateLimiter):
            check_limiter(limiter, rules, self.counters.checks)
        if isinstance(rules, RuleFile):
            rules.lead(self, last=True)

    def _hold(self, rules: Rules) -> None:
        self.rules, self._routes = rules, RouteRules(rules)
        self.has_routes = bool(self._routes)
        self._route_plans: dict[RouteLimit, RequestPlan | None] = {}
        self._plans = self._admission.plans(rules, enabled=self._enabled)
        self._asks_whether_exempt = self._enabled and bool(rules.exemption.functions)

    def review(self, said: object) -> None:
        """Check that the rules of a file can be held: for a RuleFile, which then calls `obey`."""
        assert isinstance(said, FileContents)
        if not (rules := said.rules):
            raise RulesError("there are no rules of requests, so nothing is limited")
        routes = RouteRules(rules)
        for limit in list(self._asked_for):
            routes.find(limit)

    def obey(self, said: object) -> None:
        """Hold the rules of a file, whose limits the limiter obeys already."""
        assert isinstance(said, FileContents)
        if said.rules is not self.rules:
            self.counters.follow(said.rules)
            self._hold(said.rules)

    def check(self, limit: RouteLimit) -> None:
        """Check that there is a rule for what a route asks for: at the start, where the framework allows it.

        Args:
            limit: what the route asks for.

        Raises:
            RulesError: no rule has this key and `match=None`, or the cost of the route never fits its quota.
        """
        self._routes.find(limit)
        self._asked_for.add(limit)

    def statistics(self) -> EnforcementStatistics:
        """Return what became of the requests so far, by rule."""
        counts = self.counters.statistics()
        return counts if self._own is None else replace(counts, limiter=self._own())

    def begin(self, request: Request, timeout: float | None = 0.0) -> Outcome | Steps[Outcome]:
        """Return what becomes of a request, if memory says it; else the steps by which `admit` finds it.

        Args:
            request, timeout: as for `admit`.
        """
        method, path, identity, _, root = request
        self.counters.request(identity)
        plan = self._plans[method, path, root]
        if self._asks_whether_exempt and self._admission.exempts(self.rules, request):
            return self._admission.exempt(request)
        if plan is not None and (decided := self._admission.decide(request, plan, identity, timeout)):
            return decided
        return self._admission.begin(request, self.rules.applicable(request), timeout)

    def asked(
        self, limit: RouteLimit, outcome: Outcome, identity: Mapping[str, object], parameters: Mapping[str, object]
    ) -> Refusal | Steps[Outcome] | None:
        """Return what `ask` returns, if memory says it; else steps by which it is found: what they return is added."""
        request = outcome.request
        assert request is not None, "this outcome is of no request"
        if outcome.is_exempt:
            return None
        if outcome.is_unmatched:
            outcome.is_unmatched = False
            next(self.counters.asked_after_all)
        try:
            plan = self._route_plan(limit)
        except RulesError as error:
            self.counters.accuse(limit.key, "requests of a route are refused, which asks for %r: %s", error)
            refused = refuse(self.fields, reduced_capacity(), AGAIN, error=error)
            return outcome.add(Outcome(refused), self.fields)
        known = request.identity if identity is NOTHING else known_of(request.identity, identity)
        found = None
        if plan is not None:
            values = known if plan.fields.isdisjoint(parameters) else known_of(parameters, known)
            found = self._admission.decide(request, plan, values, 0.0, None if outcome.bill.charged else outcome)
            if found is outcome:
                return None
        if not found:
            found = self._admission.begin(request, self._routes.applicable(limit, known, parameters))
        return outcome.add(found, self.fields) if isinstance(found, Outcome) else found

    def _route_plan(self, limit: RouteLimit) -> RequestPlan | None:
        try:
            return self._route_plans[limit]
        except KeyError:
            plan = self._route_plans[limit] = self._admission.plan([(*self._routes.find(limit), NOTHING)], {})
            self._asked_for.add(limit)
            return plan


class Enforcer(_Enforcement["RateLimiter"]):
    """Holds rules against requests, for threads.

    Args:
        limiter: a RateLimiter whose quotas are those of the rules, `RateLimiter.from_url(url, rules.quotas)`, or a
            function that returns it whenever it is needed.
        rules: the rules, or a RuleFile that is in the limiter too.
        headers: "draft-11" (default), "legacy", "both", "off", or Fields of one's own.
        unidentified: what becomes of a request of which a rule cannot make the key: "refuse" (default: 403, or 503
            where a function raised) or "admit" (without that rule). It is counted and told in either case.
        silence: seconds after which the log has a warning of rules that matched nothing (default 7,200).
        clock: returns seconds (default `time.monotonic`).
        checks: True, all checks (default); False; or by name {"unmatched": False}, which leaves the others on.
        own: returns a limiter that nobody else exports, if there is one now (default None: there is none).
        enabled: whether the rules are held against any request (default True).

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

    _underway = UnderwayThreads

    def admit(self, request: Request, *, timeout: float | None = 0.0) -> Outcome:
        """Charge a request to all rules that apply, or to none of them.

        Args:
            request: the request.
            timeout: seconds to wait for tokens at most; None: no limit (default 0: it does not wait). A request that
                cannot be admitted in this time is refused at once.

        Returns:
            The Outcome. Nothing is raised, but for what ends the thread.
        """
        answer = self.begin(request, timeout)
        return answer if isinstance(answer, Outcome) else run(answer)

    def ask(
        self,
        limit: RouteLimit,
        outcome: Outcome,
        identity: Mapping[str, object] = NOTHING,
        parameters: Mapping[str, object] = NOTHING,
    ) -> Refusal | None:
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
            run(self._settlement.settle(outcome, response))


class AsyncEnforcer(_Enforcement["AsyncRateLimiter"]):
    """Holds rules against requests, for the tasks of one event loop; the arguments are those of Enforcer.

    `cost` and `charge` of the rules may be coroutine functions here.

    Args:
        limiter: an AsyncRateLimiter whose quotas are those of the rules, or a function that returns it.
        rules, headers, unidentified, silence, clock, checks, own, enabled: as for Enforcer.

    Example:
        >>> import asyncio
        >>> from batchlimit import AsyncRateLimiter
        >>> from batchlimit.rules import Request, Rule, Rules
        >>> async def main():
        ...     rules = Rules([Rule("login", "1/hour", key="login:{ip}", match="POST /login")])
        ...     async with AsyncRateLimiter.from_url("memory://", rules.quotas) as limiter:
        ...         enforcer = AsyncEnforcer(limiter, rules)
        ...         request = Request("POST", "/login", {"ip": "192.0.2.1"})
        ...         return [(await enforcer.admit(request)).refusal is None for _ in range(2)]
        >>> asyncio.run(main())
        [True, False]
    """

    _underway = UnderwayTasks

    async def admit(self, request: Request, *, timeout: float | None = 0.0) -> Outcome:
        """Charge a request to all rules that apply, or to none of them; as Enforcer.admit."""
        answer = self.begin(request, timeout)
        return answer if isinstance(answer, Outcome) else await drive(answer)

    async def ask(
        self,
        limit: RouteLimit,
        outcome: Outcome,
        identity: Mapping[str, object] = NOTHING,
        parameters: Mapping[str, object] = NOTHING,
    ) -> Refusal | None:
        """Charge a request to the rule that its route asks for, and to nothing else; as Enforcer.ask."""
        found = self.asked(limit, outcome, identity, parameters)
        return found if found is None or isinstance(found, Refusal) else outcome.add(await drive(found), self.fields)

    def settle_ahead(self, outcome: Outcome, response: Response) -> Coroutine[Any, Any, None] | None:
        """Charge what the response says, as far as nothing has to be awaited for it.

        Args:
            outcome, response: as for Enforcer.settle.

        Returns:
            A coroutine that does the rest; None: that was all, as where a rule keeps its charge.
        """
        return ahead(self._settlement.settle(outcome, response)) if outcome.charges else None

    async def settle(self, outcome: Outcome, response: Response) -> None:
        """Charge what the response says; as Enforcer.settle."""
        if (rest := self.settle_ahead(outcome, response)) is not None:
            await rest

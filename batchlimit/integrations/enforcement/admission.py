"""How one request is admitted or refused: from memory where that is possible, else by steps of threads or tasks."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, Literal

from batchlimit.base.steps import Steps
from batchlimit.integrations.checks import Checks, ChecksSetting
from batchlimit.integrations.counters import Counters, EnforcementStatistics
from batchlimit.integrations.enforcement.charging import Charging, Event, Underway, checked_cost
from batchlimit.integrations.enforcement.outcome import AGAIN, Outcome, Refusal, refuse
from batchlimit.integrations.enforcement.plan import EXEMPT, Bill, Plans, RequestPlan, RouteLimit, known_of
from batchlimit.integrations.headers import Fields, Form, reduced_capacity
from batchlimit.integrations.source import L, check_limiter
from batchlimit.keyspace.base_limiter import BaseRateLimiter
from batchlimit.rules import Applicable, Request, RuleFile, Rules, RulesError, Unmade
from batchlimit.rules.file import FileContents, rules_of
from batchlimit.rules.matcher import Memory
from batchlimit.rules.request import NOTHING, keyed

Unidentified = Literal["refuse", "admit"]
_SILENCE = 7200.0


class Enforcement(Generic[L]):
    """What an Enforcer of either API does, but for going through the steps."""

    _event: ClassVar[Event]

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
        self.fields = headers if isinstance(headers, Fields) else Fields(headers)
        self.rules: Rules = rules_of(rules)
        self.counters = Counters(self.rules, silence, clock, checks if isinstance(checks, Checks) else Checks(checks))
        admits, underway = unidentified == "admit", Underway(self._event)
        self._charging = Charging(self._limiter, self.counters, self.fields, underway, admits_unidentified=admits)
        self._asked_for: set[RouteLimit] = set()
        self.asking: Iterable[RouteLimit] = ()  # what routes ask for, as far as a framework has seen them by then
        self._enabled, self._has_told = enabled, False  # whether it was told of a request that no rule matched
        self._hold(self.rules)
        if isinstance(limiter, BaseRateLimiter):
            check_limiter(limiter, rules, self.counters.checks)
        if isinstance(rules, RuleFile):
            rules.lead(self, last=True)

    def _hold(self, rules: Rules) -> None:
        self.rules, self._routes = rules, (plans := Plans(rules, self.counters.together))
        self.has_routes = any(not rule.match for rule in rules)
        self._route_plans: dict[RouteLimit, RequestPlan | None] = {}
        self._asks_whether_exempt = self._enabled and bool(rules.exemption.functions)

        def plan(method: str, path: str, root: str) -> RequestPlan | None:
            matching = rules.templates(method, path, root)
            if not self._enabled or (not matching and rules.exemption.by_path(method, path, root)):
                return EXEMPT
            return plans.of(matching)

        self._plans = Memory(plan)

    def review(self, said: object) -> None:
        """Check that the rules of a file can be held: for a RuleFile, which then calls `obey`."""
        assert isinstance(said, FileContents)
        if not (rules := said.rules):
            raise RulesError("there are no rules of requests, so nothing is limited")
        routes = Plans(rules)
        for limit in [*self._asked_for, *filter(self._routes.has, self.asking)]:
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
        """Return what becomes of a request, if memory says it; else the steps by which `admit` finds it."""
        method, path, identity, _, root = request
        counters = self.counters
        next(counters.requests)
        if counters.clock() >= counters.looks_at:
            counters.look(identity)
        plan = self._plans[method, path, root]
        if self._asks_whether_exempt:
            try:
                if self.rules.exemption.by_functions(request):
                    return self._exempt(request)
            except Exception as error:  # noqa: BLE001  a function of the user's own; one that fails does not exempt
                counters.fault("exempt", [], "a request is not exempt, for `exempt` failed: %r", error)
        if plan is not None and (decided := self._decide(request, plan, identity, timeout)):
            return decided
        return self._find(request, self.rules.applicable(request), timeout)

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
            values = known if parameters.keys().isdisjoint(plan.tariff.names) else known_of(parameters, known)
            found = self._decide(request, plan, values, 0.0, None if outcome.bill.keys else outcome)
            if found is outcome:
                return None
        if not found:
            found = self._find(request, keyed([(self._routes.find(limit), parameters)], known), 0.0)
        return outcome.add(found, self.fields) if isinstance(found, Outcome) else found

    def _route_plan(self, limit: RouteLimit) -> RequestPlan | None:
        try:
            return self._route_plans[limit]
        except KeyError:
            plan = self._route_plans[limit] = Plans(self.rules, self.counters.together).of(
                [(*self._routes.find(limit), NOTHING)]
            )
            self._asked_for.add(limit)
            return plan

    def _decide(
        self,
        request: Request,
        plan: RequestPlan,
        identity: Mapping[str, object],
        timeout: float | None,
        outcome: Outcome | None = None,
    ) -> Outcome | Steps[Outcome] | None:
        """Charge tokens that are here, into `outcome` if given, or return the steps; None: a key cannot be made."""
        tally = plan.tariff.tally
        if tally is None or not plan.tariff.rules:
            return self._exempt(request) if plan is EXEMPT else self._unmatched(request)
        try:
            bill = plan.bill(identity)
        except Exception:  # noqa: BLE001  the identity is the user's
            return None
        left = None
        try:
            left = self._limiter().take_leased(bill.costs)
        except Exception:  # noqa: BLE001  such as a limiter that cannot be made: the steps find it again, and say so
            pass
        next(tally.matched)
        if not left:
            return self._charging.charge(request, bill, timeout)
        next(tally.acquired)
        if bill.settled:
            self._charging.underway.begin(bill.settled)
        fields = bill.fields(left, self.fields)
        if bill.keyed is None:
            plan.remember(bill, identity)
        if outcome is None:
            return Outcome(None, fields, bill.settled, bill, left, request)
        outcome.headers[:], outcome.charges, outcome.bill, outcome.left = fields, bill.settled, bill, left
        return outcome

    def _find(self, request: Request, found: Applicable, timeout: float | None) -> Outcome | Steps[Outcome]:
        """Return what becomes of a request of which nobody knows it yet, or the steps by which it is found."""
        if not found.applied and not found.unmade:
            return self._unmatched(request)
        return self._steps(request, found, timeout)

    def _steps(self, request: Request, found: Applicable, timeout: float | None) -> Steps[Outcome]:
        for rule in [*(each.rule for each in found.applied), *(each.rule for each in found.unmade)]:
            next(self.counters.rules[rule.name].matched)
        for each in found.unmade:
            if (refused := self._charging.without_key(each)) is not None:
                return Outcome(refused, request=request)
        charged = []
        for rule, key in found.applied:
            cost = rule.cost
            if not isinstance(cost, int):
                try:
                    cost = checked_cost((yield cost(request)))
                except Exception as error:  # noqa: BLE001  a function of the user's own
                    unmade = Unmade(rule, "its cost cannot be told", error)
                    if (refused := self._charging.without_key(unmade)) is not None:
                        return Outcome(refused, request=request)
                    continue
            charged.append((rule, key, cost))
        return (yield from self._charging.charge(request, Bill.of(charged), timeout))

    def _exempt(self, request: Request) -> Outcome:
        next(self.counters.exempt)
        return Outcome(request=request, is_exempt=True)

    def _unmatched(self, request: Request) -> Outcome:
        next(self.counters.unmatched)
        if not self._has_told:
            self._has_told = True
            unless = ", unless its route asks for a rule" if self.has_routes else ""
            self.counters.checks.tell("unmatched", request.method, request.path[:200], unless)
        return Outcome(request=request, is_unmatched=True)

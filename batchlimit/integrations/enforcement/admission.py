"""How one request is admitted or refused: from memory where that is possible, else step by step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batchlimit.base.steps import Steps
from batchlimit.integrations.counters import Counters
from batchlimit.integrations.enforcement.charging import Charging, checked_cost
from batchlimit.integrations.enforcement.outcome import Outcome, Refusal
from batchlimit.integrations.enforcement.plan import EXEMPT, NOTHING_CHARGED, Bill, Bills, Charged, Left, RequestPlan
from batchlimit.rules import Applicable, Request, Rules, Template, Unmade
from batchlimit.rules.finder import Memory


class RequestAdmission:
    """Has a request charged to the rules that apply to it.

    Args:
        limiter: returns the limiter.
        charging: charges keys.
        counters: count by rule.
        admits_unidentified: whether a request of which a rule cannot make the key is admitted without that rule.
    """

    __slots__ = ("_admits_unidentified", "_charging", "_counters", "_limiter")

    def __init__(
        self,
        limiter: Callable[[], Any],
        charging: Charging,
        counters: Counters,
        *,
        admits_unidentified: bool,
    ) -> None:
        self._limiter, self._counters = limiter, counters
        self._charging = charging
        self._admits_unidentified = admits_unidentified

    def plans(self, rules: Rules, *, enabled: bool) -> Memory[RequestPlan | None]:
        """Return what becomes of requests by method, path and root; not `enabled`: all are exempt."""
        bills: Bills = {}

        def plan(method: str, path: str, root: str) -> RequestPlan | None:
            if not enabled or rules.exemption.by_path(method, path, root):
                return EXEMPT
            return self.plan(rules.templates(method, path, root), bills)

        return Memory(plan)

    def exempts(self, rules: Rules, request: Request) -> bool:
        """Return whether a function exempts a request; one that fails does not, and the log says so."""
        try:
            return rules.exemption.by_functions(request)
        except Exception as error:  # noqa: BLE001  a function of the user's own
            self._counters.fault("exempt", [], "a request is not exempt, for `exempt` failed: %r", error)
            return False

    def plan(self, matching: Sequence[Template], bills: Bills) -> RequestPlan | None:
        """Return the rules of a request as `hit` takes them; None, if memory cannot decide by all of them."""
        if not all(isinstance(rule.cost, int) and rule.cost for rule, _, _ in matching):
            return None
        return RequestPlan(matching, self._counters.together(rule.name for rule, _, _ in matching), bills)

    def decide(
        self,
        request: Request,
        plan: RequestPlan,
        identity: Mapping[str, object],
        timeout: float | None = 0.0,
        outcome: Outcome | None = None,
    ) -> Outcome | Steps[Outcome] | None:
        """Charge a request by tokens that are here, or return the steps by which it is charged.

        A request that no rule matches, or that is exempt, is admitted.

        Args:
            request: the request.
            plan: the rules.
            identity: values for keys.
            timeout: seconds to wait for tokens at most (default 0: not at all; None: no limit).
            outcome: one of the same request that was charged to nothing yet, and takes what is charged by tokens that
                are here (default None: another one is made).

        Returns:
            What becomes of it, or the steps; None: a key cannot be made, and `begin` says what becomes of it.
        """
        if not plan.rules:
            return self.exempt(request) if plan is EXEMPT else self._unmatched(request)
        try:
            bill = plan.bill(identity)
        except Exception:  # noqa: BLE001  the identity is the user's
            return None
        left: Left | None = None
        try:
            left = self._limiter().take_leased(bill.costs)
        except Exception:  # noqa: BLE001  such as a limiter that cannot be made: the steps find it again, and say so
            pass
        if not left:
            return self._charge(Outcome(request=request), bill, timeout)
        if bill.prepared is None:
            plan.remember(bill, identity)
        next(plan.hits)
        if bill.settled:
            self._charging.begin(bill)
        fields = self._charging.fields(bill, left)
        if outcome is None:
            return Outcome(None, fields, bill.settled, bill, left, request)
        outcome.headers[:], outcome.charges, outcome.bill, outcome.left = fields, bill.settled, bill, left
        return outcome

    def exempt(self, request: Request) -> Outcome:
        """Admit a request that is charged to nothing."""
        next(self._counters.exempt)
        return Outcome(request=request, is_exempt=True)

    def begin(self, request: Request, found: Applicable, timeout: float | None = 0.0) -> Outcome | Steps[Outcome]:
        """Return what becomes of a request of which nobody knows it yet, or the steps by which it is found.

        Args:
            request: the request.
            found: the rules that apply.
            timeout: seconds to wait for tokens at most (default 0: not at all; None: no limit).
        """
        if not found.applied and not found.unmade:
            return self._unmatched(request)
        return self._steps(Outcome(request=request), request, found, timeout)

    def _charge(self, outcome: Outcome, bill: Bill, timeout: float | None) -> Steps[Outcome]:
        for rule, _, _ in bill.charged:
            next(self._counters.rules[rule.name].matched)
        yield from self._charging.charge(outcome, bill, timeout)
        return outcome

    def _steps(self, outcome: Outcome, request: Request, found: Applicable, timeout: float | None) -> Steps[Outcome]:
        for rule in [*(each.rule for each in found.applied), *(each.rule for each in found.unmade)]:
            next(self._counters.rules[rule.name].matched)
        for each in found.unmade:
            if (refused := self._without_key(each)) is not None:
                outcome.refusal = refused
                return outcome
        charged: list[Charged] = []
        for rule, key in found.applied:
            cost = rule.cost
            if not isinstance(cost, int):
                try:
                    cost = checked_cost((yield cost(request)))
                except Exception as error:  # noqa: BLE001  a function of the user's own
                    if (refused := self._without_key(Unmade(rule, "its cost cannot be told", error))) is not None:
                        outcome.refusal = refused
                        return outcome
                    continue
            charged.append((rule, key, cost))
        yield from self._charging.charge(outcome, Bill(charged), timeout)
        return outcome

    def _unmatched(self, request: Request) -> Outcome:
        next(self._counters.unmatched)
        if not self._counters.has_told:
            self._counters.tell_of_unmatched(request.method, request.path)
        return Outcome(None, [], (), NOTHING_CHARGED, {}, request, True)

    def _without_key(self, unmade: Unmade) -> Refusal | None:
        return self._charging.without_key(unmade, admits=self._admits_unidentified)

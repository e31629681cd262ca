"""How one request is admitted or refused: from memory where that is possible, else step by step."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from batchlimit.integrations.counters import Counters, Tally
from batchlimit.integrations.enforcement.charging import Charging
from batchlimit.integrations.enforcement.outcome import Charged, Outcome, Refusal
from batchlimit.integrations.enforcement.settlement import checked_cost
from batchlimit.integrations.enforcement.steps import Steps
from batchlimit.rules import Applicable, Request, Rule, Template, Unmade
from batchlimit.rules.key import KeyTemplate

Plan = tuple[tuple[Rule, KeyTemplate, Mapping[str, object], Tally], ...]
"""Rules that memory may decide: each with what makes its key, the path parameters, and what counts it."""


class Admission:
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

    def plan(self, matching: Iterable[Template]) -> Plan | None:
        """Return the rules of a request as `hit` takes them; None, if memory cannot decide by all of them."""
        planned = [(*each, self._counters.rules[each[0].name]) for each in matching]
        if all(isinstance(rule.cost, int) and rule.cost for rule, _, _, _ in planned):
            return tuple(planned)
        return None

    def hit(self, request: Request, plan: Plan, identity: Mapping[str, object]) -> Outcome | None:
        """Charge a request by tokens that are here; None: nothing was charged, and `begin` says what becomes of it.

        A request that no rule matches is admitted.

        Args:
            request: the request.
            plan: the rules.
            identity: values for keys.
        """
        if not plan:
            return self._unmatched(request)
        charged: list[Charged] = []
        costs: dict[str, Any] = {}
        try:
            for rule, template, parameters, _ in plan:
                key, cost = template.fill(identity, parameters), rule.cost
                charged.append((rule, key, cost))  # type: ignore[arg-type]  # a plan has no function
                costs[key] = costs[key] + cost if key in costs else cost
            left = self._limiter().take_leased(costs)
        except Exception:  # noqa: BLE001  such as a limiter that cannot be made: the steps find it again, and say so
            return None
        if not left:
            return None
        for _, _, _, tally in plan:
            next(tally.hits)
        outcome = Outcome(request=request, charges=[each for each in charged if each[0].charge is not None])
        self._charging.tell(outcome, charged, left)
        return outcome

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
        yield from self._charging.charge(outcome, charged, timeout)
        return outcome

    def _unmatched(self, request: Request) -> Outcome:
        self._counters.nothing_matched(request.method, request.path)
        return Outcome(request=request, is_unmatched=True)

    def _without_key(self, unmade: Unmade) -> Refusal | None:
        return self._charging.without_key(unmade, admits=self._admits_unidentified)

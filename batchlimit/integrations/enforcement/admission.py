"""How one request is admitted or refused: from memory where that is possible, else step by step."""

from batchlimit.integrations.counters import Counters
from batchlimit.integrations.enforcement.charging import Charging
from batchlimit.integrations.enforcement.outcome import Charged, Outcome, Refusal, Response
from batchlimit.integrations.enforcement.settlement import Settlement, checked_cost
from batchlimit.integrations.enforcement.steps import Steps
from batchlimit.rules import Applicable, Request, Unmade


class Admission:
    """Has a request charged to the rules that apply to it.

    Args:
        charging: charges keys.
        settlement: takes back what was charged in vain.
        counters: count by rule.
        admits_unidentified: whether a request of which a rule cannot make the key is admitted without that rule.
    """

    __slots__ = ("_admits_unidentified", "_charging", "_counters", "_settlement")

    def __init__(
        self, charging: Charging, settlement: Settlement, counters: Counters, *, admits_unidentified: bool
    ) -> None:
        self._charging, self._settlement, self._counters = charging, settlement, counters
        self._admits_unidentified = admits_unidentified

    def begin(self, request: Request, found: Applicable, timeout: float | None = 0.0) -> Outcome | Steps[Outcome]:
        """Return what becomes of a request, if memory says it; else the steps by which it is found.

        Args:
            request: the request.
            found: the rules that apply.
            timeout: seconds to wait for tokens at most (default 0: not at all; None: no limit).
        """
        applied, unmade = found
        if not applied and not unmade:
            self._counters.nothing_matched(request.method, request.path)
            return Outcome(request=request, is_unmatched=True)
        counts, charged = self._counters.rules, list[Charged]()
        for rule, key in applied:
            next(counts[rule.name].matched)
            if isinstance(rule.cost, int) and rule.mode == "enforce":
                charged.append((rule, key, rule.cost))
        outcome = Outcome(request=request)
        if not unmade and len(charged) == len(applied) and self._charging.charge_from_memory(outcome, charged):
            return outcome
        return self._steps(outcome, request, found, timeout)

    def _steps(self, outcome: Outcome, request: Request, found: Applicable, timeout: float | None) -> Steps[Outcome]:
        for each in found.unmade:
            next(self._counters.rules[each.rule.name].matched)
        for each in found.unmade:
            if (refused := self._without_key(each)) is not None:
                outcome.refusal = refused
                return outcome
        enforced: list[Charged] = []
        shadows: list[Charged] = []
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
            (enforced if rule.mode == "enforce" else shadows).append((rule, key, cost))
        if enforced:
            yield from self._charging.charge(outcome, enforced, timeout)
        if shadows and outcome.refusal is None:
            try:
                yield from self._charging.ask_shadows(outcome, shadows)
            except BaseException as error:  # cancelled meanwhile: it will never run
                yield from self._settlement.settle(outcome, Response(499, error=error, complete=False))
                raise
        return outcome

    def _without_key(self, unmade: Unmade) -> Refusal | None:
        return self._charging.without_key(unmade, admits=self._admits_unidentified)

"""Rules are charged at once or not at all; what holds while a bucket is away, or a key cannot be made."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from batchlimit import BatchLimitError, Decision, Quota, RateLimited, StoreUnavailable
from batchlimit.integrations.counters import Counters
from batchlimit.integrations.enforcement.outcome import Charged, Outcome, Refusal, refuse
from batchlimit.integrations.enforcement.settlement import Settlement
from batchlimit.integrations.enforcement.steps import Steps
from batchlimit.integrations.headers import Fields, Told
from batchlimit.integrations.problem import quota_exceeded, reduced_capacity, unidentified
from batchlimit.rules import Rule, Unmade

Left = Mapping[str, tuple[int, Quota | None]]
"""What remains by key, and the quota that holds; None: that of the rule."""
AGAIN = 1.0
"""Retry-After (s) while the store is away."""


class Charging:
    """Charges keys, and makes a refusal of what they answer.

    Args:
        limiter: returns the limiter.
        counters: count by rule.
        fields: writes the header fields.
        settlement: takes back what was charged in vain.
    """

    __slots__ = ("_counters", "_fields", "_limiter", "_settlement")

    def __init__(self, limiter: Callable[[], Any], counters: Counters, fields: Fields, settlement: Settlement) -> None:
        self._limiter, self._counters, self._fields, self._settlement = limiter, counters, fields, settlement

    def charge(self, outcome: Outcome, enforced: list[Charged], timeout: float | None = 0.0) -> Steps[None]:
        """Charge all of them or none, but for those whose bucket is away and which are open then.

        Args:
            outcome: takes what was decided.
            enforced: what to charge.
            timeout: seconds to wait for tokens at most (default 0: not at all; None: no limit).
        """
        while enforced:
            try:
                decisions: dict[str, Decision] = yield self._limiter().decide_all(_costs(enforced))
                if timeout != 0.0 and not all(decisions.values()):
                    decisions = yield from self._wait(enforced, timeout)
            except StoreUnavailable as error:
                if (refused := self._away(enforced, error)) is not None:
                    outcome.refusal = refused
                    return
            except Exception as error:  # noqa: BLE001  a cost beyond the burst, a closed limiter, a key without quota
                outcome.refusal = self._failed(enforced, error)
                return
            else:
                yield from self._charged(outcome, enforced, decisions)
                return

    def tell(self, outcome: Outcome, enforced: Iterable[Charged], left: Left) -> None:
        """Have the fields tell of what was charged, and remember what has to be settled.

        Args:
            outcome: takes both.
            enforced: what was charged.
            left: what remains, by key.
        """
        told: list[Told] = []
        for charged in enforced:
            rule, key, _ = charged
            remaining, quota = left[key]
            told.append((rule.name, quota or rule.quota, key, remaining))
            if rule.charge is not None:
                outcome.charges = [*outcome.charges, charged]
        outcome.told = told
        outcome.headers = self._fields.of(told)

    def ask_shadows(self, outcome: Outcome, shadows: list[Charged]) -> Steps[None]:
        """Charge rules that refuse nobody, each by itself."""
        for charged in shadows:
            rule, key, cost = charged
            counts = self._counters.rules[rule.name]
            try:
                decisions: dict[str, Decision] = yield self._limiter().decide_all({key: cost})
            except BatchLimitError as error:
                self._count_away(rule, error)
                continue
            except Exception as error:  # noqa: BLE001  such as a cost beyond the burst: it would have been refused
                self._counters.fault("shadow", [rule.name], "shadow rule %r could not be asked: %s", rule.name, error)
                next(counts.shadow_refused)
                continue
            if all(each.allowed and each.source != "shadow" for each in decisions.values()):
                next(counts.acquired)
                if rule.charge is not None:
                    outcome.charges = [*outcome.charges, charged]
            else:
                next(counts.shadow_refused)

    def without_key(self, unmade: Unmade, *, admits: bool) -> Refusal | None:
        """Return why a request is refused of which a key cannot be made; None if it is admitted without the rule."""
        rule, reason, error = unmade
        counts = self._counters.rules[rule.name]
        next(counts.no_key)
        admits = admits or rule.mode == "shadow"
        what = "admitted without it" if admits else "refused"
        self._counters.checks.tell("no-key", what, reason, rule=rule.name)
        if error is not None:
            message = "rule %r: a function of the application raised: %r"
            self._counters.fault("raised", [rule.name], message, rule.name, error)
        if admits:
            return None
        next(counts.refused)
        problem = unidentified([rule.name]) if error is None else reduced_capacity([rule.name])
        return refuse(self._fields, problem, None if error is None else AGAIN, error=error)

    def _wait(self, enforced: list[Charged], timeout: float | None) -> Steps[dict[str, Decision]]:
        try:
            yield self._limiter().acquire_all(_costs(enforced), timeout=timeout)
        except RateLimited as error:
            return {error.key: error.decision}
        # A caller that waited took the last tokens that there were.
        found = {key: self._limiter().rules.explain(key).quota for _, key, _ in enforced}
        return {key: Decision(True, quota.largest_cost, 0, 0.0, 0.0, "store", quota) for key, quota in found.items()}

    def _charged(self, outcome: Outcome, enforced: list[Charged], decisions: dict[str, Decision]) -> Steps[None]:
        for key, decision in decisions.items():
            if not decision.allowed:
                outcome.refusal = self._over(enforced, key, decision)
                return
        for rule, key, _ in enforced:
            is_closed = rule.on_failure is not None and rule.on_failure.kind == "closed"
            if is_closed and decisions[key].source == "fallback":
                yield from self._settlement.take_back(enforced)
                outcome.refusal = self._closed(rule, key, StoreUnavailable("the store is away", key=key))
                return
        for rule, key, _ in enforced:  # an operator may have put a rule in shadow mode that is enforced by the code
            counts = self._counters.rules[rule.name]
            next(counts.shadow_refused if decisions[key].source == "shadow" else counts.acquired)
        self.tell(outcome, enforced, {key: (each.remaining, each.quota) for key, each in decisions.items()})

    def _failed(self, enforced: list[Charged], error: Exception) -> Refusal:
        if isinstance(error, ValueError) and (too_much := _beyond(enforced)) is not None:
            return self._over(enforced, too_much[1], _never(too_much[0]))
        names = _names(enforced)
        message = "a request was refused, for its limit (%s) could not be asked: %s"
        self._counters.fault("ask", names, message, ", ".join(names), error)
        return refuse(self._fields, reduced_capacity(names), AGAIN, error=error)

    def _over(self, enforced: list[Charged], key: str, decision: Decision) -> Refusal:
        short = [each for each in enforced if each[1] == key]
        for rule, _, _ in short:
            next(self._counters.rules[rule.name].refused)
        told = [(rule.name, decision.quota or rule.quota, key, decision.remaining) for rule, _, _ in short]
        return refuse(self._fields, quota_exceeded(_names(short)), decision.retry_after, told, key=key)

    def _away(self, enforced: list[Charged], error: StoreUnavailable) -> Refusal | None:
        """Take out of the list whose bucket is away and which is open then; or return why the request is refused."""
        concerned = [each for each in enforced if each[1] == error.key] or list(enforced)
        for rule, key, _ in concerned:
            if rule.on_failure is None or rule.on_failure.kind != "open":
                return self._closed(rule, key, error)
        for each in concerned:
            self._count_away(each[0], error)
            enforced.remove(each)
        return None

    def _closed(self, rule: Rule, key: str, error: StoreUnavailable) -> Refusal:
        self._count_away(rule, error)
        next(self._counters.rules[rule.name].refused)
        return refuse(self._fields, reduced_capacity([rule.name]), AGAIN, key=key, error=error)

    def _count_away(self, rule: Rule, error: Exception) -> None:
        next(self._counters.rules[rule.name].store_away)
        self._counters.away(rule.name, error)


def _costs(enforced: list[Charged]) -> dict[str, int]:
    costs: dict[str, int] = {}
    for _, key, cost in enforced:
        costs[key] = costs[key] + cost if key in costs else cost
    return costs


def _beyond(enforced: list[Charged]) -> Charged | None:
    """Return one whose key is asked for more than ever fits; usually by what a function returned."""
    costs = _costs(enforced)
    return next((each for each in enforced if costs[each[1]] > each[0].quota.largest_cost), None)


def _never(rule: Rule) -> Decision:
    largest = rule.quota.largest_cost
    return Decision(False, largest, 0, float("inf"), float("inf"), "local")


def _names(some: Sequence[Charged]) -> list[str]:
    return [rule.name for rule, _, _ in some]

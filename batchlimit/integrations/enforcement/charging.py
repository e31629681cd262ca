"""Rules are charged at once or not at all, and settled in the end by what their `charge` says of the response."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from batchlimit import BatchLimitError, Decision, RateLimited, StoreUnavailable
from batchlimit.base.steps import Steps
from batchlimit.events import log_event
from batchlimit.integrations.counters import Counters, Tally
from batchlimit.integrations.enforcement.outcome import AGAIN, Outcome, Refusal, Response, in_shadow, refuse
from batchlimit.integrations.enforcement.plan import Bill, Charged, Left, read_decisions
from batchlimit.integrations.headers import Fields, quota_exceeded, reduced_capacity, unidentified
from batchlimit.rules import Request, Rule, Unmade


def checked_cost(cost: object) -> int:
    """Return what a function of a rule returned, if it is a number of tokens."""
    if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:
        raise ValueError(f"a cost is a whole number of tokens, at least 0, not {cost!r}")
    return cost


Event = type[threading.Event] | type[asyncio.Event]
_HOLD = 1.0
"""Seconds that a request waits at most: for a login, and not for a download."""


class Underway:
    """Requests of this process that were charged to a key, and whose response says what stays charged."""

    __slots__ = ("_ends", "_event", "_lock", "_open", "_waiting")

    def __init__(self, event: Event) -> None:
        self._event = event  # what threads or tasks wait for
        self._lock = threading.Lock()  # held to touch these
        self._open: dict[str, tuple[int, int]] = {}  # how many of a key are under way, and the number of its last end
        self._ends = count()
        self._waiting: dict[str, list[threading.Event | asyncio.Event]] = {}

    def begin(self, charges: Iterable[Charged]) -> None:
        """Note that responses will say what of these stays charged."""
        with self._lock:
            for _, key, _ in charges:
                many, last = self._open.get(key) or (0, next(self._ends))
                self._open[key] = many + 1, last

    def end(self, key: str) -> None:
        """Note that one has said it, and wake who waits for that."""
        with self._lock:
            if (left := self._open.pop(key, (0, 0))[0] - 1) > 0:
                self._open[key] = left, next(self._ends)
            waiting = self._waiting.pop(key, [])
        for each in waiting:
            each.set()

    def among(self, charges: Iterable[Charged]) -> dict[str, int]:
        """Return the keys of these of which responses are under way, each with the number of its last end."""
        return {key: one[1] for _, key, _ in charges if (one := self._open.get(key))} if self._open else {}

    def outcome(self, key: str, were: dict[str, int], most: int, until: float) -> Steps[bool]:
        """Wait, as one of `most`, for a response under way since a refusal (`were`); return whether to decide again."""
        seconds = until - time.monotonic()
        if seconds <= 0.0 or not (key in were or key in self._open):
            return False
        with self._lock:
            if (one := self._open.get(key)) is None or one[1] != were.get(key, one[1]):
                return True  # one has just ended
            waiting = self._waiting.setdefault(key, [])
            if len(waiting) >= most:
                return False
            waiting.append(event := self._event())
        try:
            if isinstance(event, threading.Event):
                event.wait(seconds)
            else:
                with suppress(TimeoutError):
                    yield asyncio.wait_for(event.wait(), seconds)
            return event.is_set()
        finally:
            with self._lock:
                if event in (waiting := self._waiting.get(key, [])):
                    waiting.remove(event)


class Charging:
    """Charges keys, makes a refusal of what they answer, and corrects what was charged by what a response says."""

    __slots__ = ("_admits_unidentified", "_counters", "_fields", "_limiter", "underway")

    def __init__(
        self, limiter: Callable[[], Any], counters: Counters, fields: Fields, underway: Underway,
        *, admits_unidentified: bool,
    ) -> None:  # fmt: skip
        self._limiter, self._counters, self._fields, self.underway = limiter, counters, fields, underway
        self._admits_unidentified = admits_unidentified

    def charge(self, request: Request, bill: Bill, timeout: float | None) -> Steps[Outcome]:
        """Charge all or none, but for what refuses nobody now; first hear a response under way that may give back."""
        until: float | None = None
        rules: list[Charged] = []  # of which is taken out what is not charged
        shadows: dict[str, Decision] = {}
        while bill.keys:
            were = self.underway.among(bill.settled) if bill.settled else {}
            try:
                decisions: dict[str, Decision] = yield self._limiter().decide_all(bill.costs)
                if timeout != 0.0 and not all(decisions.values()):
                    decisions = yield from self._wait(bill, timeout)
            except StoreUnavailable as error:
                refusal = self._away(rules := list(bill.charged), error)
            except Exception as error:  # noqa: BLE001  a cost beyond the burst, a closed limiter, a key without quota
                refusal = self._failed(rules := list(bill.charged), error, shadows)
            else:
                short, left, is_odd = read_decisions(decisions)
                if short is None:
                    refusal = (yield from self._taken_back(bill, decisions)) if is_odd else None
                    if refusal is None:
                        tally = None if is_odd else bill.tariff.tally
                        return self._charged(request, bill, decisions, left, shadows, tally)
                else:
                    refuses, until = short in bill.told, until or time.monotonic() + _HOLD  # nobody, in shadow mode
                    if refuses and (yield from self.underway.outcome(short, were, decisions[short].limit, until)):
                        continue
                    refusal = self._over(rules := list(bill.charged), short, decisions[short], shadows)
            if refusal is not None:
                return Outcome(refusal, request=request, shadows=shadows)
            bill = Bill.of(rules)
        return Outcome(request=request, shadows=shadows)

    def without_key(self, unmade: Unmade) -> Refusal | None:
        """Return why a request is refused of which a key cannot be made; None if it is admitted without the rule."""
        rule, reason, error = unmade
        next(self._counters.rules[rule.name].no_key)
        admits = self._admits_unidentified or rule.mode == "shadow"
        what = "admitted without it" if admits else "refused"
        self._counters.checks.tell("no-key", what, reason, rule=rule.name)
        if error is not None:
            message = "rule %r: a function of the application raised: %r"
            self._counters.fault("raised", [rule.name], message, rule.name, error)
        if admits:
            return None
        problem = unidentified([rule.name]) if error is None else reduced_capacity([rule.name])
        return refuse(self._fields, problem, None if error is None else AGAIN, error=error)

    def settle(self, outcome: Outcome, response: Response) -> Steps[None]:
        """Charge what the response says; a second call does nothing."""
        charges, outcome.charges = outcome.charges, ()
        for rule, key, cost in charges:
            try:
                assert rule.charge is not None
                told = yield rule.charge(response)
                actual = (cost if told else 0) if isinstance(told, bool) else checked_cost(told)
            except Exception as error:  # noqa: BLE001  the response is on its way: nothing is left to tell the client
                message = "rule %r charged its cost, for `charge` did not decide: %r"
                self._counters.fault("charge", [rule.name], message, rule.name, error)
            else:
                if actual != cost:
                    next(self._counters.rules[rule.name].settled)
                    yield from self._correct(rule.name, key, cost, actual)
            finally:
                self.underway.end(key)

    def _correct(self, rule: str, key: str, cost: int, actual: int) -> Steps[None]:
        try:
            if actual < cost:
                yield self._limiter().refund(key, cost - actual)
            else:
                reservation = yield self._limiter().reserve(key, 0)
                yield reservation.settle(actual - cost)
        except BatchLimitError as error:
            log_event("web.not_charged", "a charge was not corrected: %s", error, rule=rule, reason=str(error))
        except Exception as error:  # noqa: BLE001  nothing is left to tell the client
            self._counters.fault("correct", [rule], "a charge of rule %r was not corrected: %s", rule, error)

    def _wait(self, bill: Bill, timeout: float | None) -> Steps[dict[str, Decision]]:
        try:
            yield self._limiter().acquire_all(bill.costs, timeout=timeout)
        except RateLimited as error:
            return {error.key: error.decision}
        # A caller that waited took the last tokens that there were.
        found = {key: self._limiter().rules.explain(key).quota for key in bill.costs}
        return {
            key: Decision(True, quota.largest_cost, 0, 0.0, quota.full_after(0), "store", quota)
            for key, quota in found.items()
        }

    def _taken_back(self, bill: Bill, decisions: dict[str, Decision]) -> Steps[Refusal | None]:
        """Take back what was charged if one of the rules admits nothing while the store is away; return a refusal."""
        for rule, key, _ in bill.charged:
            is_closed = rule.on_failure is not None and rule.on_failure.kind == "closed" and rule.mode == "enforce"
            if is_closed and decisions[key].source == "fallback":
                for each, charged, cost in bill.charged:
                    yield from self._correct(each.name, charged, cost, 0)
                return self._closed(rule, key, StoreUnavailable("the store is away", key=key))
        return None

    def _charged(
        self, request: Request, bill: Bill, decided: dict[str, Decision], left: Left, shadows: dict[str, Decision],
        tally: Tally | None,
    ) -> Outcome:  # fmt: skip
        charges = bill.settled
        # The limiter has a shadow mode too: of the code, of a file, or of an operator. It charges nothing then.
        if tally is not None:
            next(tally.acquired)
        else:
            charges = [each for each in charges if decided[each[1]].source != "shadow"]
            for rule, key, cost in bill.charged:
                counts, one = self._counters.rules[rule.name], decided[key]
                next(counts.shadow_refused if one.source == "shadow" else counts.acquired)
                if one.source == "shadow":
                    shadows[rule.name] = in_shadow(one, rule, cost)
        if charges:
            self.underway.begin(charges)
        return Outcome(None, bill.fields(left, self._fields), charges, bill, left, request, decided, shadows)

    def _failed(self, rules: list[Charged], error: Exception, shadows: dict[str, Decision]) -> Refusal | None:
        too_much: Charged | None = None
        if isinstance(error, ValueError):  # asked for more than ever fits; usually by what a function returned
            costs = Bill.of(rules).costs
            too_much = next((each for each in rules if costs[each[1]] > each[0].quota.largest_cost), None)
        concerned = rules if too_much is None else [each for each in rules if each[1] == too_much[1]]
        names = _names(concerned)
        if lenient := [each for each in concerned if each[0].mode == "shadow"]:
            names = _names(lenient)
            self._counters.fault("shadow", names, "shadow rules (%s) could not be asked: %s", ", ".join(names), error)
            self._let_pass(rules, lenient)
            return None
        if too_much is not None:
            largest = too_much[0].quota.largest_cost
            never = Decision(False, largest, 0, float("inf"), float("inf"), "local")
            return self._over(rules, too_much[1], never, shadows)
        message = "a request was refused, for its limit (%s) could not be asked: %s"
        self._counters.fault("ask", names, message, ", ".join(names), error)
        return refuse(self._fields, reduced_capacity(names), AGAIN, error=error)

    def _let_pass(self, rules: list[Charged], lenient: list[Charged]) -> None:
        """Take rules in shadow mode out of the list, which would have refused the request."""
        for each in lenient:
            next(self._counters.rules[each[0].name].shadow_refused)
            rules.remove(each)

    def _over(self, rules: list[Charged], key: str, decision: Decision, shadows: dict[str, Decision]) -> Refusal | None:
        short = [each for each in rules if each[1] == key]
        if lenient := [each for each in short if each[0].mode == "shadow"]:
            shadows |= {rule.name: in_shadow(decision, rule, cost) for rule, _, cost in lenient}
            self._let_pass(rules, lenient)
            return None
        for rule, _, _ in short:
            next(self._counters.rules[rule.name].refused)
        remaining, binding = decision.remaining, decision.binding
        told = [(rule.name, decision.quota or rule.quota, key, remaining, binding) for rule, _, _ in short]
        return refuse(self._fields, quota_exceeded(_names(short)), decision.retry_after, told, key=key)

    def _away(self, rules: list[Charged], error: StoreUnavailable) -> Refusal | None:
        """Take out of the list whose bucket is away and which is open then; or return why the request is refused."""
        concerned = [each for each in rules if each[1] == error.key] or list(rules)
        for rule, key, _ in concerned:
            if rule.mode == "enforce" and (rule.on_failure is None or rule.on_failure.kind != "open"):
                return self._closed(rule, key, error)
        for each in concerned:
            self._counters.away(each[0].name, error)
            rules.remove(each)
        return None

    def _closed(self, rule: Rule, key: str, error: StoreUnavailable) -> Refusal:
        self._counters.away(rule.name, error)
        return refuse(self._fields, reduced_capacity([rule.name]), AGAIN, key=key, error=error)


def _names(some: Sequence[Charged]) -> list[str]:
    return [rule.name for rule, _, _ in some]

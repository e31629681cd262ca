"""What is charged in the end: the cost of a rule, or what its `charge` says of the response."""

from collections.abc import Callable, Iterable
from typing import Any

from batchlimit import BatchLimitError
from batchlimit.base.steps import Steps
from batchlimit.events import log_event
from batchlimit.integrations.counters import Counters
from batchlimit.integrations.enforcement.bill import Charged
from batchlimit.integrations.enforcement.outcome import Outcome, Response
from batchlimit.integrations.enforcement.underway import Underway


class Settlement:
    """Corrects what was charged.

    Args:
        limiter: returns the limiter.
        counters: count what was corrected.
        underway: hears when a response has said what stays charged.

    Attributes:
        underway: as above.
    """

    __slots__ = ("_counters", "_limiter", "underway")

    def __init__(self, limiter: Callable[[], Any], counters: Counters, underway: Underway[Any]) -> None:
        self._limiter, self._counters, self.underway = limiter, counters, underway

    def settle(self, outcome: Outcome, response: Response) -> Steps[None]:
        """Charge what the response says; a second call does nothing."""
        charges, outcome.charges = outcome.charges, ()
        for each in charges:
            try:
                yield from self._settle(each, response)
            finally:
                self.underway.end(each[1])

    def _settle(self, charged: Charged, response: Response) -> Steps[None]:
        rule, key, cost = charged
        try:
            assert rule.charge is not None
            actual = _actual((yield rule.charge(response)), cost)
        except Exception as error:  # noqa: BLE001  the response is on its way: nothing is left to tell the client
            message = "rule %r charged its cost, for `charge` did not decide: %r"
            self._counters.fault("charge", [rule.name], message, rule.name, error)
            return
        if actual != cost:
            next(self._counters.rules[rule.name].settled)
            yield from self._correct(rule.name, key, cost, actual)

    def take_back(self, charged: Iterable[Charged]) -> Steps[None]:
        """Give back what was charged."""
        for rule, key, cost in charged:
            yield from self._correct(rule.name, key, cost, 0)

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


def checked_cost(cost: object) -> int:
    """Return what a function of a rule returned, if it is a number of tokens."""
    if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:
        raise ValueError(f"a cost is a whole number of tokens, at least 0, not {cost!r}")
    return cost


def _actual(told: object, cost: int) -> int:
    if isinstance(told, bool):
        return cost if told else 0
    return checked_cost(told)

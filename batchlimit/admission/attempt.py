"""How one call gets its tokens and its permit: steps that threads and tasks go through alike."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from batchlimit.admission.permit import give_back, not_refunded, started_now
from batchlimit.base.steps import Steps
from batchlimit.base.waiting import deadline
from batchlimit.errors import BatchLimitError, ConcurrencyLimited, RateLimited

_NO_ROOM = ("limit", "partition")
"""Reasons of a concurrency limiter for which there may be room later."""


def attempt(
    rates: Any,
    costs: Mapping[str, int],
    acquire: Callable[[float | None], Any],
    refund: Callable[[Mapping[str, int]], Any],
    timeout: float | None,
    priority: int,
) -> Steps[Any]:
    """Return the steps that lead to the permit, with the tokens charged; they raise why there is none.

    A call holds one of the two while it waits for no other. Before any queue it looks at both, so a caller that is over
    its rate is refused without a place in a queue. `refund` gives the tokens back, whatever happens meanwhile.
    """
    clock: Callable[[], float] = rates._clock
    until = deadline(timeout, clock())

    def may_wait(refusal: ConcurrencyLimited) -> bool:
        return refusal.reason in _NO_ROOM and clock() < until

    def left() -> float | None:
        return None if until == math.inf else max(0.0, until - clock())

    permit = None
    try:
        permit = yield acquire(0)
    except ConcurrencyLimited as refusal:
        if not may_wait(refusal):
            raise
    while permit is None or not (yield from _charged(rates, costs, permit, until)):
        yield rates.acquire_all(costs, timeout=left(), priority=priority)
        try:
            permit = yield acquire(0)
        except BaseException as error:
            back = refund(costs)
            if not isinstance(error, ConcurrencyLimited) or not may_wait(error):
                raise
        else:
            break
        yield back
        permit = yield acquire(left())
    started_now(permit)
    return permit


def _charged(rates: Any, costs: Mapping[str, int], permit: Any, until: float) -> Steps[bool]:
    """Charge the tokens at once, holding a permit; if they are not there, it goes back, and there is time."""
    try:
        if rates.take_leased(costs) is not None:  # a hit by `decide_all` takes longer
            return True
        decisions = yield rates.decide_all(costs)
        short = next(((key, each) for key, each in decisions.items() if not each), None)
        if short is not None and until < rates._clock() + short[1].retry_after:
            raise RateLimited(short[0], short[1].retry_after, short[1])
    except BaseException:
        give_back(permit)
        raise
    if short is not None:
        give_back(permit)
    return short is None


def refunds(rates: Any, costs: Mapping[str, int]) -> Steps[None]:
    """Return the steps that give tokens back; they never raise."""
    for key, tokens in costs.items():
        try:
            yield rates.refund(key, tokens)
        except BatchLimitError as error:  # the caller has its answer already
            not_refunded(key, tokens, error)

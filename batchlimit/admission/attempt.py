"""How one call gets its tokens and its permit: steps that threads and tasks go through alike."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from batchlimit.admission.permit import give_back, not_refunded, started_now
from batchlimit.base.steps import Steps
from batchlimit.base.waiting import deadline
from batchlimit.errors import BatchLimitError, ConcurrencyLimited, RateLimited

P = TypeVar("P")

_NO_ROOM = ("limit", "partition")
"""Reasons of a concurrency limiter for which there may be room later."""


class Attempt(Generic[P]):
    """The way of one call to its tokens and its permit. It holds one of them while it waits for no other.

    Args:
        rates: the rate limiter.
        costs: whole tokens by key.
        acquire: asks for a permit, with a timeout (s; None: no limit).
        refund: gives the tokens back, whatever happens meanwhile; its result is the next step.
        timeout: seconds to wait at most; None: no limit.
        priority: of the call among those that wait for tokens.
    """

    __slots__ = ("_acquire", "_clock", "_costs", "_priority", "_rates", "_refund", "_until")

    def __init__(
        self,
        rates: Any,
        costs: Mapping[str, int],
        acquire: Callable[[float | None], Any],
        refund: Callable[[Mapping[str, int]], Any],
        timeout: float | None,
        priority: int,
    ) -> None:
        self._rates, self._costs, self._acquire, self._refund = rates, costs, acquire, refund
        self._priority = priority
        self._clock: Callable[[], float] = rates._clock
        self._until = deadline(timeout, self._clock())

    def steps(self) -> Steps[P]:
        """Return the steps that lead to the permit, with the tokens charged; they raise why there is none.

        Before any queue it looks at both, so a caller that is over its rate is refused without a place in a queue.
        """
        permit: P | None = yield from self._permit_at_once()
        while permit is None or not (yield from self._charged(permit)):
            yield self._rates.acquire_all(self._costs, timeout=self._left(), priority=self._priority)
            if (permit := (yield from self._permit_on_tokens())) is not None:
                break
            permit = yield self._acquire(self._left())
        started_now(permit)
        return permit

    def _permit_at_once(self) -> Steps[P | None]:
        """Return a permit; None: there is no room now, and time to wait."""
        try:
            permit: P = yield self._acquire(0)
        except ConcurrencyLimited as refusal:
            if not self._may_wait(refusal):
                raise
            return None
        return permit

    def _charged(self, permit: P) -> Steps[bool]:
        """Charge the tokens at once, holding a permit; if they are not there, it goes back, and there is time."""
        try:
            if self._rates.take_leased(self._costs) is not None:  # a hit by `decide_all` takes longer
                return True
            decisions = yield self._rates.decide_all(self._costs)
            short = next(((key, each) for key, each in decisions.items() if not each), None)
            if short is not None and self._until < self._clock() + short[1].retry_after:
                raise RateLimited(short[0], short[1].retry_after, short[1])
        except BaseException:
            give_back(permit)
            raise
        if short is not None:
            give_back(permit)
        return short is None

    def _permit_on_tokens(self) -> Steps[P | None]:
        """Return a permit that is there at once, holding tokens; else these go back. None: there is time to wait."""
        try:
            permit: P = yield self._acquire(0)
        except BaseException as error:
            back = self._refund(self._costs)
            if not isinstance(error, ConcurrencyLimited) or not self._may_wait(error):
                raise
        else:
            return permit
        yield back
        return None

    def _may_wait(self, refusal: ConcurrencyLimited) -> bool:
        return refusal.reason in _NO_ROOM and self._clock() < self._until

    def _left(self) -> float | None:
        return None if self._until == math.inf else max(0.0, self._until - self._clock())


def refunds(rates: Any, costs: Mapping[str, int]) -> Steps[None]:
    """Return the steps that give tokens back; they never raise."""
    for key, tokens in costs.items():
        try:
            yield rates.refund(key, tokens)
        except BatchLimitError as error:  # the caller has its answer already
            not_refunded(key, tokens, error)

"""ConcurrencyClientInterceptor: how many calls a threaded client has under way at once."""

from collections.abc import Callable
from typing import Any

from batchlimit import BatchLimitError, ConcurrencyLimiter
from batchlimit.admission.permit import THREADED
from batchlimit.concurrency import KeyedConcurrencyLimiter
from batchlimit.integrations.grpc.details import Name, alike, nobody
from batchlimit.integrations.grpc.every_call import EveryCall, Patience, Tell, completed
from batchlimit.integrations.grpc.refused_call import RefusedCall
from batchlimit.integrations.grpc.status import OutcomeOf, outcome_of, refusal
from batchlimit.integrations.permit_source import KeyOf, PermitSource
from batchlimit.integrations.permits import refusal_of


class ConcurrencyClientInterceptor(EveryCall):
    """Lets a client have as many calls under way at once as the limiter lets; the others never leave the process.

    A call that is refused raises RefusedCall, as if the server had answered RESOURCE_EXHAUSTED. A call is under way
    until it has ended; a stream, until its last response was read or it was cancelled. The operation of a call is its
    method in full. For a limit for each method give a KeyedConcurrencyLimiter and `key=by_method`.

    Args:
        limiter: The limiter, keyed or not; its owner closes it.
        partition: Returns the name of a call's partition, from its `grpc.ClientCallDetails` (default: no name).
        key: Returns the key of a call, or several keys, for a keyed limiter (default None: the limiter has no keys).
        outcome: Returns what a status tells about the load (default `outcome_of`).
        priority: Returns the priority of a call: high ones are served first in the queue (default: the same for all).
        wait: Whether calls wait in the queue of the limiter, until their deadline at most (default False). `future` and
            streams wait before they return.
        timeout: Seconds that a call waits at most; only with `wait` (default None: until its deadline).

    Raises:
        TypeError: `key` does not go with the limiter.
        ValueError: `timeout` is below 0, or comes without `wait`.

    Example:
        >>> import grpc
        >>> from batchlimit.concurrency import KeyedConcurrencyLimiter
        >>> from batchlimit.integrations.grpc import ConcurrencyClientInterceptor, by_method
        >>> limiter = KeyedConcurrencyLimiter({"/shop.Orders/*": 5, "*": 20})
        >>> limits = ConcurrencyClientInterceptor(limiter, key=by_method)
        >>> channel = grpc.intercept_channel(grpc.insecure_channel("localhost:50051"), limits)
        >>> channel.close()
        >>> limiter.close()
    """

    def __init__(
        self,
        limiter: ConcurrencyLimiter | KeyedConcurrencyLimiter,
        *,
        partition: Name = nobody,
        key: KeyOf | None = None,
        outcome: OutcomeOf = outcome_of,
        priority: Callable[[Any], int] = alike,
        wait: bool = False,
        timeout: float | None = None,
    ) -> None:
        super().__init__(Patience(wait, timeout))
        self._source = PermitSource(THREADED, limiter, partition, key)
        self._outcome, self._priority = outcome, priority

    def __repr__(self) -> str:
        return f"<ConcurrencyClientInterceptor of {self._source!r}>"

    def _admit(self, details: Any, timeout: float | None) -> Tell | RefusedCall:
        options = {"operation": details.method, "priority": self._priority(details)}
        try:
            permit = self._source.acquire(details, timeout=timeout, **options)
        except BatchLimitError as error:
            return RefusedCall(refusal_of(error), refusal(error))
        return completed(permit, self._outcome)

"""How a call ends that holds a permit."""

from typing import Any, Protocol

import grpc

from batchlimit import AsyncPermit, Outcome, Permit
from batchlimit.integrations.grpc.status import OutcomeOf, status

_ROUNDED = 0.02
"""A deadline travels as a duration of three digits, rounded up, and the client goes by its own clock: when it gives up,
the server has some of the time left, up to 1 % of it and what the call took to arrive."""
_ARRIVAL_S = 0.005


class Context(Protocol):
    """What the contexts of both kinds of server can tell."""

    def code(self) -> Any: ...

    def time_remaining(self) -> float | None: ...


class Ending:
    """Completes the permit of a call, by how its client saw it end."""

    __slots__ = ("_context", "_given", "_outcome", "_permit")

    def __init__(self, permit: Permit | AsyncPermit, outcome: OutcomeOf, context: Context) -> None:
        self._permit, self._outcome, self._context = permit, outcome, context
        self._given = context.time_remaining()

    def end(self, error: BaseException | None, *, gone: bool) -> None:
        """Complete the permit, of a call that ended with this error, if any; `gone`: its client waits no longer.

        An error without a status is the limiter's to classify.
        """
        code = self._status(error, gone)
        if code is not None:
            self._complete(self._outcome(code))
        elif error is None:
            self._permit.success()
        else:
            self._permit.__exit__(type(error), error, error.__traceback__)

    def _status(self, error: BaseException | None, gone: bool) -> grpc.StatusCode | None:
        """Return the status that was set, for want of one that of a call further down which failed."""
        if self._late():
            return grpc.StatusCode.DEADLINE_EXCEEDED
        if code := status(self._context.code()):
            return code
        if gone:
            return grpc.StatusCode.CANCELLED
        return status(error.code()) if isinstance(error, grpc.RpcError) and hasattr(error, "code") else None

    def _late(self) -> bool:
        """Whether the time is over that the client gave it, by the client's clock as far as one can tell here."""
        left = self._context.time_remaining()
        return left is not None and self._given is not None and left <= _ARRIVAL_S + _ROUNDED * self._given

    def _complete(self, outcome: Outcome) -> None:
        match outcome:
            case Outcome.SUCCESS:
                self._permit.success()
            case Outcome.DROPPED:
                self._permit.drop()
            case Outcome.IGNORED:
                self._permit.ignore()

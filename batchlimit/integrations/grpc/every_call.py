"""How the calls of clients wait, leave and end, whoever admits them; EveryCall is for threads."""

import time
from collections.abc import Callable
from typing import Any

import grpc

from batchlimit.admission.permit import give_back
from batchlimit.integrations.async_front import AsyncFront
from batchlimit.integrations.enforcement import Outcome
from batchlimit.integrations.front import Front
from batchlimit.integrations.grpc.answer import CallResponse
from batchlimit.integrations.grpc.call import completing
from batchlimit.integrations.grpc.details import Changed
from batchlimit.integrations.grpc.refused_call import RefusedCall
from batchlimit.integrations.grpc.status import OutcomeOf

Continuation = Callable[[grpc.ClientCallDetails, Any], Any]
Tell = Callable[[grpc.StatusCode, Any, BaseException | None], None]
"""Gets the status and the trailing metadata of an admitted call, once; and the error, if the call could not be made."""


def charged(front: Front | AsyncFront, outcome: Outcome) -> Tell | None:
    """Return what charges a call by its response; None: no rule needs that."""
    return (lambda *ended: front.settle(outcome, CallResponse.of(*ended))) if outcome.charges else None


def completed(permit: Any, outcome: OutcomeOf) -> Tell:
    """Return what completes a permit by the status of its call; a call that could not be made gives it back."""
    complete = completing(permit, outcome)
    return lambda code, _, error: complete(code, None, 0) if error is None else give_back(permit)


class Patience:
    """How long calls wait for tokens, and how much time that leaves them.

    Args:
        wait: whether they wait at all.
        timeout: seconds to wait at most; None: no limit.
    """

    def __init__(self, wait: bool, timeout: float | None) -> None:
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout is at least 0 s, or None for no limit, not {timeout}")
        if timeout is not None and not wait:
            raise ValueError("timeout says how long calls wait, and they do not: pass wait=True")
        self._wait, self._timeout = wait, timeout

    def __repr__(self) -> str:
        return f"<Patience of {self.of(None)} s>"

    def of(self, deadline: float | None) -> float | None:
        """Return for how many seconds a call waits that has so many until its deadline."""
        if not self._wait:
            return 0.0
        return min((each for each in (self._timeout, deadline) if each is not None), default=None)

    def rest(self, details: Any, waited: float) -> Any:
        """Return the details of a call that may have waited so many seconds: the rest of its time is left."""
        if not self._wait or details.timeout is None:
            return details
        return Changed(details, timeout=max(0.0, details.timeout - waited))


class EveryCall(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Intercepts the calls of all four kinds of methods alike: `_admit` says which may leave."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience

    def _admit(self, details: Any, timeout: float | None) -> Tell | RefusedCall | None:
        """Return the function that gets the end of the call, or the refusal; None: nobody needs the end."""
        raise NotImplementedError

    def intercept_unary_unary(self, continuation: Continuation, client_call_details: Any, request: Any) -> Any:
        """Let a call go, or refuse it; grpcio calls this."""
        began = time.monotonic()
        tell = self._admit(client_call_details, self._patience.of(client_call_details.timeout))
        if isinstance(tell, RefusedCall):
            return tell
        details = self._patience.rest(client_call_details, time.monotonic() - began)
        if tell is None:
            return continuation(details, request)
        try:
            call = continuation(details, request)
        except BaseException as error:
            tell(grpc.StatusCode.UNKNOWN, (), error)
            raise
        _at_the_end(call, lambda: tell(call.code(), call.trailing_metadata(), None))
        return call

    intercept_unary_stream = intercept_unary_unary
    # The stubs of grpcio call the last argument `request_iterator` here; grpcio passes it by position.
    intercept_stream_unary = intercept_stream_stream = intercept_unary_unary  # type: ignore[assignment]


def _at_the_end(call: Any, tell: Callable[[], None]) -> None:
    """Run `tell` when a call has ended, which may be long after the interceptor has returned it."""

    def ended(_: object = None) -> None:
        tell()

    if hasattr(call, "add_done_callback"):
        call.add_done_callback(ended)
    elif not call.add_callback(ended):
        ended()

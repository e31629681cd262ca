"""What both interceptors of threaded clients share: how long a call may wait, and when it has ended."""

from collections.abc import Callable
from typing import Any

import grpc

from batchlimit.integrations.grpc.details import Changed

Continuation = Callable[[grpc.ClientCallDetails, Any], Any]


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
    """Intercepts the calls of all four kinds of methods alike: `_intercept` says how."""

    def _intercept(self, continuation: Continuation, details: Any, request: Any) -> Any:
        raise NotImplementedError

    def intercept_unary_unary(self, continuation: Continuation, client_call_details: Any, request: Any) -> Any:
        """Let a call go, or refuse it; grpcio calls this."""
        return self._intercept(continuation, client_call_details, request)

    intercept_unary_stream = intercept_unary_unary
    # The stubs of grpcio call the last argument `request_iterator` here; grpcio passes it by position.
    intercept_stream_unary = intercept_stream_stream = intercept_unary_unary  # type: ignore[assignment]


def at_the_end(call: Any, settle: Callable[[], None]) -> None:
    """Run `settle` when a call has ended, which may be long after the interceptor has returned it."""

    def ended(_: object = None) -> None:
        settle()

    if hasattr(call, "add_done_callback"):
        call.add_done_callback(ended)
    elif not call.add_callback(ended):
        ended()

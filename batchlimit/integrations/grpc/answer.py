"""What gRPC and the rules say to each other: refusals, statuses, metadata, addresses."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import grpc

from batchlimit.integrations import enforcement
from batchlimit.integrations.grpc.retry_info import DETAILS, status_details
from batchlimit.integrations.grpc.status import PUSHBACK, REASON, Metadata, Refusal
from batchlimit.integrations.headers import RETRY_AFTER, Header, texts

_CODES = {429: grpc.StatusCode.RESOURCE_EXHAUSTED, 403: grpc.StatusCode.UNAUTHENTICATED}
_HTTP = {
    "OK": 200,
    "CANCELLED": 499,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "UNAUTHENTICATED": 401,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
}
"""Statuses of HTTP that mean the same, as google.rpc.Code has them; all others are a 500."""


@dataclass(frozen=True, slots=True)
class CallResponse(enforcement.Response):
    """What the `charge` of a rule decides by, where the request is a call.

    Attributes:
        status: the HTTP status that means the same, so that `charge=[401, "5xx"]` is of use: UNAUTHENTICATED is 401.
        headers: the trailing metadata (default none).
        error: what ended the handler (default None).
        complete: whether the call has the status OK (default True).
        sent: how many messages the handler sent (default 0).
        code: the status (default OK).

    Example:
        >>> import grpc
        >>> from batchlimit.integrations.grpc import CallResponse
        >>> CallResponse.of(grpc.StatusCode.NOT_FOUND).status
        404
    """

    code: grpc.StatusCode = grpc.StatusCode.OK

    @classmethod
    def of(
        cls,
        code: grpc.StatusCode,
        metadata: Iterable[tuple[str, str | bytes]] | None = (),
        error: BaseException | None = None,
        sent: int = 0,
    ) -> "CallResponse":
        """Return the response of a call with this status.

        Args:
            code: the status.
            metadata: the trailing metadata (default none).
            error: what ended the handler (default None).
            sent: how many messages were sent (default 0).

        Returns:
            The CallResponse.
        """
        status = _HTTP.get(code.name, 500)
        return cls(status, fields_of(metadata), error, code is grpc.StatusCode.OK, sent, code)


def ended_with(
    context: Any, code: grpc.StatusCode | None, error: BaseException | None, sent: int
) -> enforcement.Response:
    """Return the response of a call that a server has ended; an error without a status is UNKNOWN, as grpcio says."""
    if code is None:
        code = grpc.StatusCode.OK if error is None else grpc.StatusCode.UNKNOWN
    return CallResponse.of(code, context.trailing_metadata(), error, sent)


def refusal_of(refused: enforcement.Refusal) -> Refusal:
    """Return what a call is answered that rules refuse.

    RESOURCE_EXHAUSTED for a limit, UNAVAILABLE while the store is away, UNAUTHENTICATED if nobody can say who asks.
    """
    code = _CODES.get(refused.status, grpc.StatusCode.UNAVAILABLE)
    wait = refused.retry_after
    details = _details(code, refused.rules, wait)
    metadata: Metadata = ((REASON, "quota" if refused.status == 429 else "store" if wait else "identity"),)
    if wait is None:
        return Refusal(code, details, metadata)
    if not math.isfinite(wait):
        return Refusal(code, details, (*metadata, (PUSHBACK, "-1")))  # a channel that retries gives up
    metadata += tuple((name.decode(), value.decode()) for name, value in refused.headers if name == RETRY_AFTER)
    pushback = str(math.ceil(wait * 1000))
    return Refusal(
        code, details, (*metadata, (PUSHBACK, pushback), (DETAILS, status_details(code.value[0], details, wait)))
    )


def _details(code: grpc.StatusCode, rules: Sequence[str], wait: float | None) -> str:
    names = ", ".join(rules) or "a rule"
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return f"a limit applies by caller, and this call does not say who is calling: {names}"
    if code is grpc.StatusCode.UNAVAILABLE:
        return f"a limit cannot be asked now: {names}; retry after {wait} s"
    if wait is None or not math.isfinite(wait):
        return f"a call of this cost never fits: {names}; ask for less"
    return f"the quota is exceeded: {names}; retry after {wait:.3f} s"


def fields_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> list[Header]:
    """Return metadata as header fields."""
    return [(key.encode(), value if isinstance(value, bytes) else value.encode()) for key, value in metadata or ()]


def metadata_of(fields: Iterable[Header]) -> tuple[tuple[str, str], ...]:
    """Return header fields as metadata."""
    return tuple(texts(fields))


def address_of(peer: str) -> str | None:
    """Return the address in what grpcio says of a peer; None for a Unix socket.

    Example:
        >>> address_of("ipv4:192.0.2.1:5000"), address_of("ipv6:%5B2001:db8::1%5D:5000"), address_of("unix:/run/it")
        ('192.0.2.1', '[2001:db8::1]', None)
    """
    kind, _, rest = peer.partition(":")
    return unquote(rest).rpartition(":")[0] if kind in ("ipv4", "ipv6") else None

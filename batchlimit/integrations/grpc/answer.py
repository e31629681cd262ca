"""What gRPC and batchlimit say to each other: statuses, refusals, metadata, addresses."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc

from batchlimit import BatchLimitError, ConcurrencyLimited
from batchlimit.concurrency import Outcome
from batchlimit.concurrency.classification import STATUSES
from batchlimit.errors import PermitLost
from batchlimit.integrations import enforcement
from batchlimit.integrations.headers import RETRY_AFTER, Header

OutcomeOf = Callable[[grpc.StatusCode], Outcome]
"""Returns what a status tells about the load."""
Metadata = tuple[tuple[str, str | bytes], ...]

_DROPPED = {grpc.StatusCode[name] for name in STATUSES}
_CODES = {429: grpc.StatusCode.RESOURCE_EXHAUSTED, 403: grpc.StatusCode.UNAUTHENTICATED}


def outcome_of(code: grpc.StatusCode) -> Outcome:
    """Return what a status tells about the load.

    Args:
        code: The status in which a call ended.

    Returns:
        `Outcome.SUCCESS` for OK. `Outcome.DROPPED` for UNAVAILABLE, DEADLINE_EXCEEDED and RESOURCE_EXHAUSTED: load made
        these calls fail. `Outcome.IGNORED` for all others: they are often faster than an answer, and the server would
        look faster the more calls fail.

    Example:
        >>> import grpc
        >>> outcome_of(grpc.StatusCode.UNAVAILABLE)
        <Outcome.DROPPED: 'dropped'>
    """
    if code is grpc.StatusCode.OK:
        return Outcome.SUCCESS
    return Outcome.DROPPED if code in _DROPPED else Outcome.IGNORED


def status(code: object) -> grpc.StatusCode | None:
    """Return a status that was set, be it as a number; None if none was."""
    if isinstance(code, grpc.StatusCode):
        return code
    return next((known for known in grpc.StatusCode if known.value[0] == code), None)


_HTTP = {
    "OK": 200, "CANCELLED": 499, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "UNAUTHENTICATED": 401, "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400, "ABORTED": 409, "OUT_OF_RANGE": 400, "UNIMPLEMENTED": 501, "UNAVAILABLE": 503,
}  # fmt: skip
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
        """Return the response of a call with this status."""
        status = _HTTP.get(code.name, 500)
        return cls(status, fields_of(metadata), error, code is grpc.StatusCode.OK, sent, code)


PUSHBACK = "grpc-retry-pushback-ms"
"""gRPC's own key: a client whose channel retries comes back after so many ms, and not by its own backoff."""
REASON = "batchlimit-reason"
"""Why: `limit`, `partition`, `queue_full`, `queue_timeout`, `shed` or `unknown_partition`; see ConcurrencyLimited.

`lost`: the call was cancelled, because its shared permit may be another's by now.

Of rules: `quota`, `store` (it is away) or `identity` (nobody can say who asks)."""
STATUS = "grpc-status-details-bin"


class CallRefusal(NamedTuple):
    """The status, the details and the trailing metadata of a refused call."""

    code: grpc.StatusCode
    details: str
    metadata: Metadata

    def tell(self, context: Any) -> None:
        """Have a call end with this answer when its handler returns: cheaper than `abort`, and without an error."""
        context.set_trailing_metadata(self.metadata)
        context.set_code(self.code)
        context.set_details(self.details)

    def end(self, context: Any) -> Any:
        """End a call with this answer, by `abort`, which raises; on asyncio it is to be awaited."""
        context.set_trailing_metadata(self.metadata)
        return context.abort(self.code, self.details)


def refused_by_limiter(error: BatchLimitError) -> CallRefusal:
    """Return the answer to a call without a permit; it tells when to come back if that is known."""
    if isinstance(error, PermitLost):
        return CallRefusal(grpc.StatusCode.UNAVAILABLE, str(error), ((REASON, "lost"),))
    if not isinstance(error, ConcurrencyLimited):
        return CallRefusal(grpc.StatusCode.UNAVAILABLE, str(error), ())
    wait = error.retry_after and math.ceil(error.retry_after * 1000) / 1000
    return _limited(error.reason, wait, error.limit, error.in_flight, error.detail, error.key)


@lru_cache  # in an overload many calls get the same answer
def _limited(*told: Any) -> CallRefusal:
    error = ConcurrencyLimited(*told)
    metadata: Metadata = ((REASON, error.reason),)
    if error.retry_after is not None:
        metadata += ((PUSHBACK, str(round(error.retry_after * 1000))),)
    return CallRefusal(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), metadata)


def refused_by_rules(refused: enforcement.Refusal) -> CallRefusal:
    """Return the answer to a call that rules refuse, for the store is away, or nobody knows who asks."""
    code, wait = _CODES.get(refused.status, grpc.StatusCode.UNAVAILABLE), refused.retry_after
    details = _details(code, ", ".join(refused.rules) or "a rule", wait)
    metadata: Metadata = ((REASON, "quota" if refused.status == 429 else "store" if wait else "identity"),)
    if wait is None:
        return CallRefusal(code, details, metadata)
    if not math.isfinite(wait):
        return CallRefusal(code, details, (*metadata, (PUSHBACK, "-1")))  # a channel that retries gives up
    metadata += tuple((name.decode(), value.decode()) for name, value in refused.headers if name == RETRY_AFTER)
    metadata += ((PUSHBACK, str(math.ceil(wait * 1000))), (STATUS, status_details(code.value[0], details, wait)))
    return CallRefusal(code, details, metadata)


def _details(code: grpc.StatusCode, names: str, wait: float | None) -> str:
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


def address_of(peer: str) -> str | None:
    """Return the address in what grpcio says of a peer; None for a Unix socket.

    Example:
        >>> address_of("ipv4:192.0.2.1:5000"), address_of("ipv6:%5B2001:db8::1%5D:5000"), address_of("unix:/run/it")
        ('192.0.2.1', '[2001:db8::1]', None)
    """
    kind, _, rest = peer.partition(":")
    return unquote(rest).rpartition(":")[0] if kind in ("ipv4", "ipv6") else None


# google.rpc.RetryInfo, as clients of gRPC look for it. It is three messages of protobuf, each in a field of the next:
# Duration, RetryInfo and Status. They are written by hand, because grpcio itself does without protobuf.
_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"
_LONGEST = 315_576_000_000.0
"""Seconds of a Duration, at most."""


def status_details(code: int, message: str, delay: float) -> bytes:
    """Return a google.rpc.Status, serialized, that says when to come back (s, finite)."""
    seconds = min(max(delay, 0.0), _LONGEST)
    whole = math.floor(seconds)
    duration = _number(1, whole) + _number(2, int((seconds - whole) * 1e9))
    any_of_it = _bytes(1, _RETRY_INFO) + _bytes(2, _bytes(1, duration))
    return _number(1, code) + _bytes(2, message.encode()) + _bytes(3, any_of_it)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])

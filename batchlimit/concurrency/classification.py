"""What an exception that ended a call tells about the load. Errors of other packages go by name: it imports none."""

from collections.abc import Callable
from functools import partial
from typing import Any

from batchlimit.concurrency.law import Outcome
from batchlimit.errors import ConcurrencyLimited
from batchlimit.events import log_event

Classify = Callable[[BaseException], Outcome]
"""Returns how a call ended that an exception ended."""


_LOAD = (TimeoutError, ConcurrencyLimited, ConnectionError, MemoryError)


def classify(error: BaseException) -> Outcome:
    """Return what an exception that ended a call tells about the load.

    It knows Python's own errors and those of httpx, requests, niquests, urllib3, aiohttp, botocore, redis, grpc,
    SQLAlchemy, asyncpg, psycopg, the drivers of MySQL, and sqlite3, and classes derived from them, by their names: it
    imports none. Of grpc, UNAVAILABLE, DEADLINE_EXCEEDED and RESOURCE_EXHAUSTED are load. Cancellation, wrong arguments
    and all other errors are ignored, not successes: an error is often faster than an answer.

    Args:
        error: The exception that ended the call. A group is load if any exception in it is.

    Returns:
        `Outcome.DROPPED` if the call ran out of time, was refused or was cut off further down, else `Outcome.IGNORED`.

    Example:
        >>> from batchlimit.concurrency import classify
        >>> classify(TimeoutError()), classify(KeyError("id"))
        (<Outcome.DROPPED: 'dropped'>, <Outcome.IGNORED: 'ignored'>)
    """
    load = error.split(_is_load)[0] if isinstance(error, BaseExceptionGroup) else _is_load(error)
    return Outcome.DROPPED if load else Outcome.IGNORED


def outcome_of_answer(answer: object) -> Outcome:
    """Return what a response of an HTTP client, or a status, tells: see `Permit.answered`; TypeError for no status."""
    status = _status(answer)
    if status is None:
        raise TypeError(f"an answer has a status, like that of httpx, requests or aiohttp, not {answer!r}")
    if status in (429, 503, 504) or (status >= 400 and "retry-after" in (getattr(answer, "headers", None) or ())):
        return Outcome.DROPPED
    return Outcome.IGNORED if status >= 499 else Outcome.SUCCESS  # an error is often faster than an answer


def _status(answer: object) -> int | None:
    for found in (answer, getattr(answer, "status_code", None), getattr(answer, "status", None)):
        if isinstance(found, int):
            return found
    return None


def outcome_of(error: BaseException, classify: Classify) -> Outcome:
    """Return what `classify` says of an error; IGNORED, and a line in the log, if it fails or says no Outcome."""
    try:
        if isinstance(found := classify(error), Outcome):
            return found
        log_event("classify.failed", "classify must return an Outcome, not %r; the call is ignored", found)
    except Exception as failure:  # noqa: BLE001  a function of the user's own
        log_event("classify.failed", "classify failed; the call is ignored", error=failure)
    return Outcome.IGNORED


STATUSES = frozenset({"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"})
"""The status codes of gRPC that load brings about."""

_SQLSTATES = ("08", "53", "57P01", "57P02", "57P03", "57P05", "57014", "55P03")
"""How the SQLSTATE of such an error begins: connection lost, no resources, the server ends or begins, out of time."""

_MYSQL = frozenset({1040, 1205, 2002, 2003, 2006, 2013, 2055, 3024, 4031})
"""Too many connections, a lock waited for too long, no connection, connection lost, a statement that took too long."""

_SQLITE = frozenset({5, 6})
"""Busy and locked: somebody else had the database for longer than the timeout."""


def _is_load(error: BaseException) -> bool:
    """Return whether load brings about an error: one of Python, or of a known package by the nearest class known."""
    if isinstance(error, _LOAD):
        return True
    for kind in type(error).__mro__:
        verdict = _VERDICTS.get((kind.__module__.partition(".")[0], kind.__name__))
        if verdict is not None:
            return verdict if isinstance(verdict, bool) else verdict(error)
    return False


def _is_any(*within: object) -> bool:
    """Whether load brings about one of the errors within an error."""
    return any(isinstance(each, BaseException) and _is_load(each) for each in within)


def _by_reason(error: Any) -> bool:
    return _is_any(getattr(error, "reason", None), getattr(error, "original_error", None))


def _by_driver(error: Any) -> bool:
    """Tell of an error of SQLAlchemy, which says whether the connection was lost, or has the driver's own error."""
    return bool(error.connection_invalidated) or _is_any(error.orig, getattr(error.orig, "__cause__", None))


def _by_answer(error: Any) -> bool:
    """Tell of an error that stands for an answer: it has the response, or the status itself."""
    answer = getattr(error, "response", None)
    answer = error if answer is None else answer  # a response of requests is false if it is an error
    return _status(answer) is not None and outcome_of_answer(answer) is Outcome.DROPPED


def _by_sqlstate(error: Any, *, or_none: bool = False) -> bool:
    """Tell of an error of a driver; `or_none`: its error has no SQLSTATE where no server answered."""
    found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return found.startswith(_SQLSTATES) if isinstance(found, str) else or_none


_Verdict = bool | Callable[[Any], bool]


_ROWS: tuple[tuple[_Verdict, str, str], ...] = (
    (True, "httpx httpx2 httpcore", "TimeoutException NetworkError RemoteProtocolError"),
    (_by_answer, "httpx httpx2", "HTTPStatusError"),
    (_by_answer, "requests niquests", "HTTPError"),
    (_by_answer, "aiohttp", "ClientResponseError"),
    (_by_answer, "openai anthropic", "APIStatusError"),
    (True, "openai anthropic", "APIConnectionError"),
    (True, "requests niquests", "Timeout ConnectionError ChunkedEncodingError"),
    (False, "requests niquests", "SSLError"),
    (True, "urllib3 urllib3_future", "TimeoutError ProtocolError NewConnectionError EmptyPoolError"),
    (_by_reason, "urllib3 urllib3_future", "MaxRetryError ProxyError"),
    (_by_reason, "urllib", "URLError"),
    (True, "http", "IncompleteRead"),
    (True, "aiohttp", "ClientConnectionError ClientPayloadError"),
    (False, "aiohttp", "ClientSSLError ServerFingerprintMismatch"),
    (True, "botocore", "ConnectionError ConnectionClosedError ReadTimeoutError"),
    (True, "botocore", "ResponseStreamingError IncompleteReadError"),
    (False, "botocore", "SSLError"),
    (True, "redis valkey", "TimeoutError ConnectionError ClusterDownError OutOfMemoryError"),
    (False, "redis valkey", "AuthenticationError AuthorizationError ExternalAuthProviderError"),
    (
        lambda error: callable(code := getattr(error, "code", 0)) and getattr(code(), "name", 0) in STATUSES,
        "grpc",
        "RpcError",
    ),
    (True, "grpc", "FutureTimeoutError"),
    (True, "sqlalchemy", "TimeoutError DisconnectionError"),
    (_by_driver, "sqlalchemy", "DBAPIError"),
    (_by_sqlstate, "asyncpg", "PostgresError"),
    (_by_sqlstate, "psycopg psycopg2", "Error"),
    (partial(_by_sqlstate, or_none=True), "psycopg psycopg2", "OperationalError"),
    (
        lambda error: not _MYSQL.isdisjoint((getattr(error, "errno", None), *error.args[:1])),
        "pymysql MySQLdb mysql asyncmy",
        "OperationalError",
    ),
    (lambda error: getattr(error, "sqlite_errorcode", 0) & 0xFF in _SQLITE, "sqlite3", "OperationalError"),
)
_VERDICTS = {
    (package, name): is_load
    for is_load, packages, names in _ROWS
    for package in packages.split()
    for name in names.split()
}

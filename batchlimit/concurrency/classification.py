"""What an exception that ended a call tells about the load."""

from collections.abc import Callable

from batchlimit.concurrency.law import Outcome
from batchlimit.concurrency.symptom import is_symptom
from batchlimit.errors import ConcurrencyLimited

Classify = Callable[[BaseException], Outcome]
"""Returns how a call ended that an exception ended."""

_LOAD = (TimeoutError, ConcurrencyLimited, ConnectionError, MemoryError)


def classify(error: BaseException) -> Outcome:
    """Dropped: it ran out of time, was refused or cut off further down. Ignored: all else.

    Besides Python's own errors it knows those of httpx, requests, urllib3, aiohttp, redis, grpc (UNAVAILABLE,
    DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED), SQLAlchemy, asyncpg, psycopg, the drivers of MySQL and sqlite3, and classes
    derived from them. It goes by the names of classes and their modules, and imports none of these.

    Cancellation and wrong arguments tell nothing; and an error is often faster than an answer, so that counting it as
    one would make the service look faster the more it fails. Of a group, any one that is load counts.

    Args:
        error: What ended the call.

    Returns:
        `Outcome.DROPPED` or `Outcome.IGNORED`.
    """
    load = error.split(_is_load)[0] if isinstance(error, BaseExceptionGroup) else _is_load(error)
    return Outcome.DROPPED if load else Outcome.IGNORED


def _is_load(error: BaseException) -> bool:
    return isinstance(error, _LOAD) or is_symptom(error)

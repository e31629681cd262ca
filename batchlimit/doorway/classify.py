"""What an exception that ended a call tells about the load."""

from collections.abc import Callable

from batchlimit.core.sample import Outcome
from batchlimit.errors import ConcurrencyLimited

Classify = Callable[[BaseException], Outcome]
"""Returns how a call ended that an exception ended."""

_LOAD = (TimeoutError, ConcurrencyLimited, ConnectionError, MemoryError)


def classify(error: BaseException) -> Outcome:
    """Dropped: it ran out of time, was refused or cut off further down. Ignored: all else.

    Cancellation and wrong arguments tell nothing; and an error is often faster than an answer, so that counting it as
    one would make the service look faster the more it fails. Of a group, any one that is load counts.
    """
    load = error.split(_LOAD)[0] if isinstance(error, BaseExceptionGroup) else isinstance(error, _LOAD)
    return Outcome.DROPPED if load else Outcome.IGNORED

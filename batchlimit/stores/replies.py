"""What a server says on a connection that we read ourselves."""

from collections.abc import Callable

import hiredis
from redis.exceptions import InvalidResponse

NOTHING = object()
"""What a reader says where the next answer is not there yet, or not all of it."""
PUSH: tuple[type, ...] = (hiredis.PushNotification,) if hasattr(hiredis, "PushNotification") else ()
"""What a server says unasked, where the client speaks RESP3; hiredis before 3.2 has no such thing."""


def reader(error: Callable[[str], Exception]) -> hiredis.Reader:
    """Return what takes bytes in and gives answers out; `error` makes of what a server says in an error what it means.

    Raises InvalidResponse where the bytes are no answer.
    """
    return hiredis.Reader(protocolError=InvalidResponse, replyError=error, notEnoughData=NOTHING)

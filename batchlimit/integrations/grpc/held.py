"""The permit of the call that a handler serves."""

from contextvars import ContextVar

from batchlimit.admission.permit import give_back
from batchlimit.integrations.permits import AnyPermit

HELD: ContextVar[AnyPermit | None] = ContextVar("batchlimit_permit", default=None)
"""Set before the handler of a call runs, in its thread or its task."""


def current_permit() -> AnyPermit:
    """Return the permit of the call that this thread or task serves, for `check`, `lost` and `token` of a shared one.

    Returns:
        The permit.

    Raises:
        LookupError: no concurrency interceptor stands before the handler.

    Example:
        >>> try:
        ...     current_permit()
        ... except LookupError as error:
        ...     print(error)
        no concurrency interceptor stands before this handler: add one to the server
    """
    if (permit := HELD.get()) is None:
        raise LookupError("no concurrency interceptor stands before this handler: add one to the server")
    return permit


def spare() -> None:
    """Give back the permit of a call that rules refuse: its status tells nothing about the load."""
    if (permit := HELD.get()) is not None:
        give_back(permit)

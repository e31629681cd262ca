"""The permit of the call that a handler serves."""

from contextvars import ContextVar

from batchlimit.admission.permit import give_back
from batchlimit.concurrency import Permit
from batchlimit.integrations.permits import AnyPermit
from batchlimit.shared import SharedPermit

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


def check_permit() -> None:
    """Raise if the call that this thread serves was told to give up, or lost its permit; its handler is to call this.

    It is for handlers of sheddable calls and of shared limits behind a ConcurrencyInterceptor. That answers
    RESOURCE_EXHAUSTED, or UNAVAILABLE to a call that lost its permit. Elsewhere this does nothing. Streams need not
    call it: it is called before each request and each response of theirs.

    Raises:
        ConcurrencyLimited: The call was told to give up; the reason is "shed".
        PermitLost: The shared permit is lost.

    Example:
        >>> from batchlimit.integrations.grpc import check_permit
        >>> def Search(request, context):
        ...     for shard in range(100):
        ...         check_permit()
    """
    permit = HELD.get()
    if isinstance(permit, Permit | SharedPermit):
        permit.check()


def spare() -> None:
    """Give back the permit of a call that rules refuse: its status tells nothing about the load."""
    if (permit := HELD.get()) is not None:
        give_back(permit)

"""What the status in which a call ended tells about the load."""

from collections.abc import Callable

import grpc

from batchlimit import Outcome
from batchlimit.doorway.symptom import STATUSES

OutcomeOf = Callable[[grpc.StatusCode], Outcome]
"""Returns what a status tells about the load."""

_DROPPED = {grpc.StatusCode[name] for name in STATUSES}


def outcome_of(code: grpc.StatusCode) -> Outcome:
    """Return what a status tells about the load.

    Load made it fail that was refused, ran out of time or found nobody (UNAVAILABLE, DEADLINE_EXCEEDED,
    RESOURCE_EXHAUSTED). Every other failure tells nothing: a cancellation, wrong arguments, what is not there. It is
    often faster than an answer, and would make the server look faster the more calls fail.
    """
    if code is grpc.StatusCode.OK:
        return Outcome.SUCCESS
    return Outcome.DROPPED if code in _DROPPED else Outcome.IGNORED


def status(code: object) -> grpc.StatusCode | None:
    """Return a status that was set, be it as a number; None if none was."""
    if isinstance(code, grpc.StatusCode):
        return code
    return next((known for known in grpc.StatusCode if known.value[0] == code), None)

"""The refusal of a route that asks for a rule, where no rules are installed: the log says why."""

from batchlimit.integrations.enforcement.charging import AGAIN
from batchlimit.integrations.enforcement.outcome import Refusal, refuse
from batchlimit.integrations.faults import Faults
from batchlimit.integrations.headers import Fields
from batchlimit.integrations.problem import reduced_capacity

_fields, _faults = Fields(), Faults()


def unprotected(key: str, remedy: str) -> Refusal:
    """Return a 503, and tell the log once a minute for each key.

    Args:
        key: what the route asks for.
        remedy: what the user should do.

    Returns:
        The Refusal.
    """
    _faults.tell(key, "requests of a route are refused, which asks for %r: %s", key, remedy)
    return refuse(_fields, reduced_capacity(), AGAIN)

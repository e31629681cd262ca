"""Overrides that processes obey, and that the store has lost: they write them down for a minute, again and again."""

from batchlimit.errors import StoreUnavailable
from batchlimit.overrides.overrides import Overrides
from batchlimit.stores.redis import RedisStore

REMEDY = "`batchlimit unset --all` ends them, and so does setting any override anew"
_NAMED = 5
"""Overrides that a message names."""


def lost(store: RedisStore, found: Overrides) -> Overrides:
    """Return what processes obeyed within the last minute, where the store has nothing; else nothing.

    Args:
        store: the store.
        found: the overrides that it has.
    """
    if found.revision:
        return Overrides()
    try:
        return store.rules.obeyed()
    except StoreUnavailable as error:
        if error.code != "NOPERM":
            raise
        return Overrides()


def told(overrides: Overrides) -> str:
    """Return their names and quotas, of many the first."""
    named = [f"{each.name} {each.said}" for each in overrides]
    more = [] if len(named) <= _NAMED else [f"{len(named) - _NAMED} more"]
    return ", ".join(named[:_NAMED] + more)

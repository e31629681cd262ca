"""A change of overrides, as it is sent, and as the log tells of it."""

from collections.abc import Mapping
from typing import NamedTuple


class Change(NamedTuple):
    """What is to change, all or nothing, if the overrides are still those that the operator saw.

    Attributes:
        revision: the one that the operator saw; 0: there were none.
        texts: of each override that changes, by its name; "" removes it.
        who: who changes it.
        why: the reason.
    """

    revision: int
    texts: Mapping[str, str]
    who: str = ""
    why: str = ""


class Entry(NamedTuple):
    """One override that was changed, or one bucket that was filled.

    Attributes:
        at: when (seconds since 1970, by the server's clock).
        revision: of the overrides from then on; of a bucket it says nothing.
        name: the key or the pattern.
        old: what stood there before; "": nothing. Of a bucket: the tokens that it had.
        new: what stands there from then on; "": nothing. Of a bucket: "refilled" or "cleared".
        who: who changed it.
        why: the reason.
    """

    at: float
    revision: int
    name: str
    old: str
    new: str
    who: str
    why: str

"""The lease of one instance at one key, and the places that permits hold under it."""

import math
from collections.abc import Callable
from typing import Any
from weakref import ref

RENEWED = 1 / 3
"""The part of a lease after which it is renewed."""
USED = 0.9
"""The part of a lease that is used: the rest is for clocks of unlike speed, and for calls that stop slowly."""


class SlotLease:
    """How long the slots of a key belong to this instance. A lease that is over is never renewed: a new one begins.

    Attributes:
        until: When it is over, unless the store answers before (ns of the limiter's clock; 0: it has not begun).
        renewal: When it is to be renewed (ns; inf: it has not begun).
        ended: True once somebody saw that it was over. Permits look without a lock, while an answer may come in.
    """

    __slots__ = ("ended", "renewal", "until")

    def __init__(self, until: float = 0) -> None:
        self.until, self.renewal, self.ended = until, math.inf, False

    def __repr__(self) -> str:
        return f"<SlotLease until {self.until}>"

    def renew(self, sent: int, length: int) -> None:
        """Begin or go on: the store answered an ask that was sent then (ns), and lends for so long (ns)."""
        self.until = sent + int(USED * length)
        self.renewal = sent + RENEWED * length

    def is_over(self, now: int) -> bool:
        """Whether it has begun and is over. It stays so: an answer that comes later renews it for nobody."""
        if 0 != self.until <= now:
            self.ended = True
        return self.ended

    def end(self) -> None:
        """Be over, whatever the clock says: in a forked child."""
        self.ended = True


class Claim(ref[object]):
    """A permit, and what outlasts it: who has its place or waits for it. The end of the permit calls C code alone.

    A destructor may be interrupted by a signal handler that raises; a callback in C is not.

    Attributes:
        key: The key of the permit.
    """

    __slots__ = ("key",)
    __hash__, __eq__ = object.__hash__, object.__eq__  # also of a permit that is no more
    key: str


class Place:
    """The hold of one permit: a slot under a lease.

    Attributes:
        lease: The lease.
        token: The number that the permit was given.
        claim: The claim of the permit, until this place ends.
        holder: Returns the permit that has to `hurry` when this is lost, if there still is one. None is kept alive.
    """

    __slots__ = ("_is_lost", "claim", "holder", "lease", "token")

    def __init__(self, lease: SlotLease, token: int, claim: Claim | None = None) -> None:
        self.lease, self.token, self.claim = lease, token, claim
        self._is_lost = False
        self.holder: Callable[[], Any] = _nobody  # by name: the model of tests copies places by pickle

    def __repr__(self) -> str:
        return f"<Place {self.token}{', lost' if self._is_lost else ''} under {self.lease!r}>"

    def is_lost(self, now: int) -> bool:
        """Whether the slot may belong to somebody else by now."""
        return self._is_lost or self.lease.is_over(now)

    def lose(self) -> None:
        """Be lost, before the end of the lease: the store has forgotten it, and gave the slot to others."""
        self._is_lost = True

    def give_up(self) -> None:
        """Tell the permit that this place is lost, from any thread."""
        if (holder := self.holder()) is not None:
            holder.hurry()


def _nobody() -> None:
    return None

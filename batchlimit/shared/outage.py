"""The permits of one key that were given while the store was away."""

import math
from collections.abc import Iterator

from batchlimit.shared.lease import Lease, Place
from batchlimit.shared.line import Waiter


class Outage:
    """Places without a slot: nothing is promised of them, and no lease of the store ends them. It is pure.

    Attributes:
        lease: A lease that is over in a forked child alone.
    """

    __slots__ = ("_places", "lease")

    def __init__(self) -> None:
        self.lease = Lease(math.inf)
        self._places: dict[Place, None] = {}

    def __repr__(self) -> str:
        return f"<Outage: {len(self)} permits>"

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def take(self, waiter: Waiter) -> None:
        """Let a waiter have a place; its token is 0."""
        waiter.place = place = Place(self.lease, 0, waiter.claim)
        self._places[place] = None

    def end(self, place: Place) -> bool:
        """End the hold of a permit; return whether there was one."""
        if self._places.pop(place, place) is not None:
            return False
        place.claim = None
        return True

"""The permits of one key that were given while the store was away."""

import math

from batchlimit.shared.lease import Lease, Place


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

    def __len__(self) -> int:
        return len(self._places)

    def take(self) -> Place:
        """Return a place for a permit; its token is 0."""
        place = Place(self.lease, 0)
        self._places[place] = None
        return place

    def end(self, place: Place) -> bool:
        """End the hold of a permit; return whether there was one."""
        return self._places.pop(place, place) is None

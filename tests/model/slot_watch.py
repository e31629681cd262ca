"""What must be true of every history of a shared limit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from batchlimit.bucket.slot_table import SlotAsk, SlotReply, SlotTable
from batchlimit.shared.held_slots import Place
from tests.simulation.watch import Violation

if TYPE_CHECKING:
    from tests.model.slots import Process


class SlotWatch:
    """Hears what happens, and looks at all after each step; raises Violation."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.most = 0  # the largest token of a permit so far
        self._last = 0  # the last token that the store told
        self._lost_places: list[Place] = []  # permits that are under way, and were lost
        self.is_calm = True  # nothing went wrong so far: what the store lends is at work
        self._doubtful: list[int] = []  # until when the store may lend all slots once more: it lost its data

    def held(self, name: str, place: Place) -> None:
        """A caller has a permit."""
        if self._limit == 1 and not self._doubtful and place.token <= self.most:
            raise Violation(f"{name} gives a permit whose token is not larger than that of the one before")
        self.most = max(self.most, place.token)

    def left(self, place: Place) -> None:
        """A permit ends."""
        self._lost_places = [each for each in self._lost_places if each is not place]

    def lost(self, now: int, lease: int) -> None:
        """The store loses its data: what it had lent is held beside what it lends now, until the leases end."""
        self._doubtful.append(now + lease)
        self._last = self.most = 0
        self.is_calm = False

    def lent(self, ask: SlotAsk, reply: SlotReply, table: SlotTable) -> None:
        """The store has carried out an ask."""
        if reply.token <= self._last:
            raise Violation(f"the store tells {ask.instance} a token that is not larger than the last one")
        self._last = reply.token
        if reply.granted - ask.returned < ask.target and reply.lent < reply.limit:
            raise Violation(f"{ask.instance} does not get what it asks for, and only {reply.lent} are lent")
        if table.lent != sum(each.held for each in table._all):
            raise Violation(f"{table.lent} are lent by the sum, and not by its parts")

    def wait(self, processes: "Sequence[Process]", now: int) -> None:
        """Time goes by, and no message is under way."""
        busy = sum(not is_lost(each, now * 1000) for process in processes for each in process.permits)
        if self.is_calm and busy < self._limit and (waits := [each.name for each in processes if each.waiting]):
            raise Violation(f"a caller waits at {waits[0]}, and only {busy} permits are held")

    def look(self, processes: "Sequence[Process]", table: SlotTable, now: int, store: int) -> None:
        """Look at all."""
        self._doubtful = [each for each in self._doubtful if each > now]
        by_right = [each for process in processes for each in process.permits if not is_lost(each, now * 1000)]
        if len(by_right) > self._limit * (1 + len(self._doubtful)):
            raise Violation(f"{len(by_right)} permits of {self._limit} are held at once")
        for place in by_right:
            if any(each is place for each in self._lost_places):
                raise Violation("a permit that was lost is held again")
        lost = [each for process in processes for each in process.permits if is_lost(each, now * 1000)]
        known, self._lost_places = {id(each) for each in self._lost_places}, lost
        if not self._doubtful and any(each._is_lost and id(each) not in known for each in lost):
            raise Violation("a permit is lost before its lease is over")
        for process in processes:
            self._check_belief(process, table, now, store)

    def _check_belief(self, process: "Process", table: SlotTable, now: int, store: int) -> None:
        """No instance believes to hold more than the store lends it, nor for longer."""
        held = process.slots.held
        if len(held.places) > held.count:
            raise Violation(f"{process.name} has {len(held.places)} permits on {held.count} slots")
        if self._doubtful or held.count == 0 or held.lease.ended or held.lease.until <= now * 1000:
            return
        lent = table._by_name.get(held.name)
        if lent is None or lent.ends <= store:
            raise Violation(f"{process.name} holds {held.count} slots, and its lease is over at the store")
        if held.count > lent.held:
            raise Violation(f"{process.name} holds {held.count} slots, and the store lends it {lent.held}")

    def told(self, now: int) -> tuple[object, ...]:
        """What it remembers, to tell equal worlds."""
        return self.is_calm, *[each - now for each in self._doubtful]


def is_lost(place: Place, now: int) -> bool:
    """Whether a permit is lost (ns). Unlike `Place.is_lost` nobody hears that somebody looked."""
    return place._is_lost or place.lease.ended or 0 != place.lease.until <= now

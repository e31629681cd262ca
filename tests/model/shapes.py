"""Which worlds are explored to the end: how many instances and callers, of what quota, and what may go wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple

from batchlimit.reservoir.sizing import BatchSizer, FixedBatch


@dataclass(frozen=True)
class Shape:
    """One kind of world. Times are seconds, but `slowest` is in us."""

    quota: str
    most: Mapping[str, int]
    """How often each thing happens at the most: `calls`, `faults` of messages, and what else may happen."""
    callers: tuple[tuple[int, float] | tuple[int, float, int], ...] = ((1, 0.0), (1, inf))
    """Kinds of callers: what they cost, how long they wait, and their priority, if it is not 1."""
    instances: int = 2
    sizers: tuple[BatchSizer, ...] = (FixedBatch(0),)
    """By instance; the last one is that of all further instances."""
    idle_after: float = 1.0
    timeout: float = 0.3
    slowest: int = 5000
    """A message is on its way for so long (us), unless it is lost."""
    refund: int = 1
    """What a caller takes back."""
    other: str = ""
    """Another quota, by which an instance goes from some time on, or which an operator sets."""
    lasts: float = 0.3
    """For how long that counts."""
    pause: float = 0.2
    """For how long a caller pauses the key."""

    def role(self, place: int) -> int:
        """Instances of one role are alike."""
        return min(place, len(self.sizers) - 1)


@dataclass(frozen=True)
class SlotShape:
    """One kind of world of a shared limit."""

    limit: int
    most: Mapping[str, int]
    """How often each thing happens at the most."""
    patience: tuple[float, ...] = (0.0, inf)
    """How long callers wait (s)."""
    instances: int = 2
    lease: float = 0.9


_SPENDS = FixedBatch(0)


class CallKind(NamedTuple):
    """A kind of call at several keys: what it costs, by key, and whether it waits."""

    costs: Mapping[str, int]
    waits: bool = False


@dataclass(frozen=True)
class ManyShape:
    """One kind of world of calls at several keys."""

    quotas: Mapping[str, str]
    """By key."""
    calls: tuple[CallKind, ...]
    most: Mapping[str, int]
    """How often each thing happens at the most."""
    instances: int = 1
    sizer: BatchSizer = _SPENDS
    together: bool = True
    """Whether the store charges several keys at once; a cluster does not, where they are in several slots."""
    slowest: int = 0
    """As of Shape, in us."""
    first: tuple[CallKind, ...] = ()
    """Callers that come to A before all else, and whose messages arrive."""
    begun: tuple[CallKind, ...] = ()
    """Callers that come to A then."""
    idle_after: float = 0.2
    deadline: float = 0.05


AnyShape = Shape | SlotShape | ManyShape
Size = Literal["usual", "deep", "all"]
BOTH = FixedBatch(0), FixedBatch(2)
"""One instance spends, the others lease."""
TWO = (FixedBatch(2),)
WAIT = (inf,)
NOW, WAITS = ((1, 0.0),), ((1, inf),)
URGENT = ((1, inf), (1, inf, 10))

SOME = ((1, 0.0), (5, 0.0))
AB = {"a": "10/s burst 6", "b": "4/s burst 2"}
EACH, EACH_WAITS = (CallKind({"a": 1, "b": 1}),), (CallKind({"a": 1, "b": 1}, waits=True),)
A, A_AND_TWO = (CallKind({"a": 1}),), (CallKind({"a": 1, "b": 2}),)
"""Where batches are of two, A leases of `a`, and spends at `b`."""
TIGHT = {"a": "10/s burst 2", "b": "4/s burst 1"}

USUAL: dict[str, AnyShape] = {
    "one spends": Shape("2/s burst 1", {"calls": 3}, instances=1, slowest=0),
    "two spend": Shape("2/s burst 1", {"calls": 2}),
    "one leases": Shape("10/s burst 6", {"calls": 3}, SOME, 1, TWO, 0.2, slowest=0),
    "one spends, one leases": Shape("10/s burst 12", {"calls": 2}, sizers=BOTH),
    "two lease": Shape("20/s burst 12", {"calls": 2}, ((1, 0.0), (6, inf)), sizers=TWO),
    "three wait at one": Shape("10/s burst 2", {"calls": 3}, WAITS, 1, TWO, slowest=0),
    "three wait at two": Shape("10/s burst 1", {"calls": 3}, WAITS, slowest=0),
    "urgent at one": Shape("10/s burst 2", {"calls": 4}, URGENT, 1, TWO, slowest=0),
    "urgent, interrupted": Shape("10/s burst 1", {"calls": 3, "cancels": 1}, URGENT, 1, slowest=0),
    "one leases, a message is lost": Shape("10/s burst 6", {"calls": 2, "faults": 1}, NOW, 1, TWO, slowest=0),
    "refunded": Shape("10/s burst 6", {"calls": 2, "refunds": 1}, NOW, 1, TWO, slowest=0),
    "refunded, two spend": Shape("4/s burst 1", {"calls": 3, "refunds": 1}, NOW, slowest=0),
    "refunded, a message is lost": Shape("4/s burst 2", {"calls": 2, "refunds": 1, "faults": 1}, NOW, 1, slowest=0),
    "owed": Shape("10/s burst 2", {"calls": 2, "debits": 1}, NOW, 1, TWO),
    "interrupted": Shape("10/s burst 2", {"calls": 2, "cancels": 1}, sizers=BOTH),
    "closed": Shape("10/s burst 12", {"calls": 2, "closes": 1}, NOW, sizers=BOTH, slowest=0, idle_after=0.2),
    "died": Shape("10/s burst 12", {"calls": 2, "deaths": 1}, NOW, sizers=BOTH, slowest=0, idle_after=0.2),
    "forgotten": Shape("10/s burst 12", {"calls": 2, "losses": 1}, NOW, sizers=BOTH, slowest=0, idle_after=0.2),
    "two bandwidths": Shape("10/s burst 2; 4/s burst 3", {"calls": 2}, sizers=BOTH),
    "larger costs": Shape("10/s burst 4", {"calls": 2}, ((2, 0.0), (3, inf)), sizers=TWO),
    "stopped": Shape("10/s burst 6", {"calls": 2, "stops": 1}, NOW, 1, TWO, 0.2),
    "paused": Shape("10/s burst 6", {"calls": 2, "pauses": 1}, NOW, 1, TWO, slowest=0),
    "paused, waits": Shape("10/s burst 6", {"calls": 2, "pauses": 1}, WAITS, 1, TWO, slowest=0),
    "paused, resumed": Shape("10/s burst 6", {"calls": 1, "pauses": 1, "resumes": 1}, WAITS, 1, TWO, slowest=0),
    "another quota": Shape("10/s burst 2", {"calls": 3, "reloads": 1}, WAITS, 1, TWO, slowest=0, other="5/s burst 1"),
    "two quotas": Shape("10/s burst 1", {"calls": 2, "reloads": 1}, NOW, slowest=0, other="20/s burst 2"),
    "an override that ends": Shape(
        "10/s burst 12", {"calls": 2, "overrides": 1}, NOW, sizers=BOTH, slowest=0, other="20/s burst 6"
    ),
    "forked, spends": Shape("2/s burst 1", {"calls": 2, "forks": 1}, slowest=0),
    "forked, leases": Shape("10/s burst 12", {"calls": 3, "forks": 1}, NOW, 2, (FixedBatch(3),), 0.2, slowest=0),
    "filled": Shape("10/s burst 6", {"calls": 2, "fills": 1}, NOW, sizers=BOTH, slowest=0),
    "the clock of the store steps back": Shape("10/s burst 6", {"calls": 2, "backs": 1}, sizers=BOTH, slowest=0),
    "one slot": SlotShape(1, {"calls": 2}),
    "two slots": SlotShape(2, {"calls": 3}, WAIT, 1),
    "one slot, given up": SlotShape(1, {"calls": 2, "cancels": 1}, WAIT),
    "one slot, a message is lost": SlotShape(1, {"calls": 2, "faults": 1}, WAIT, 1),
    "one slot, stopped": SlotShape(1, {"calls": 2, "stops": 1}, WAIT, 1),
    "one slot, forked": SlotShape(1, {"calls": 2, "forks": 1}, WAIT),
    "one slot, forgotten": SlotShape(1, {"calls": 2, "losses": 1}, WAIT),
    "two keys, spent": ManyShape(TIGHT, EACH, {"calls": 3}),
    "two keys, spent at two": ManyShape(TIGHT, EACH, {"calls": 2}, 2, slowest=5000),
    "two keys, spent, a message is lost": ManyShape(TIGHT, EACH, {"calls": 1, "faults": 1}),
    "two keys, spent, interrupted": ManyShape(TIGHT, EACH, {"calls": 1, "cancels": 1}),
    "one key leased, one spent": ManyShape(AB, A_AND_TWO, {"calls": 2}, 1, FixedBatch(2), first=A),
    "one key leased, one spent, interrupted": ManyShape(
        AB, A_AND_TWO, {"calls": 1, "cancels": 1}, 1, FixedBatch(2), first=A
    ),
    "two keys leased": ManyShape(AB, A_AND_TWO, {"calls": 1}, 1, FixedBatch(3), first=(*A, CallKind({"b": 1}))),
    "two keys by slot": ManyShape(TIGHT, EACH, {"calls": 2}, together=False),
    "two keys by slot, three calls": ManyShape(TIGHT, EACH, {"calls": 3}, together=False),
    "two keys by slot, interrupted": ManyShape(TIGHT, EACH, {"calls": 1, "cancels": 1}, together=False),
    "two keys by slot, a message is lost": ManyShape(TIGHT, EACH, {"calls": 1, "faults": 1}, together=False),
    "two keys by slot, waits": ManyShape(TIGHT, EACH_WAITS, {"calls": 2}, together=False),
}
"""A minute of the suite."""
DEEP: dict[str, AnyShape] = {
    "urgent at two": Shape("10/s burst 1", {"calls": 3}, URGENT, slowest=0),
    "one leases longer, a message is lost": Shape("10/s burst 6", {"calls": 3, "faults": 1}, NOW, 1, TWO, slowest=0),
    "one leases, waits, a message is lost": Shape("10/s burst 6", {"calls": 2, "faults": 1}, instances=1, sizers=TWO),
    "one spends, waits, a message is lost": Shape("2/s burst 1", {"calls": 2, "faults": 1}, instances=1),
    "some wait, refunded": Shape("10/s burst 6", {"calls": 2, "refunds": 1}, instances=1, sizers=TWO),
    "four spend": Shape("4/s burst 2", {"calls": 4}, ((1, 0.0), (2, 0.0)), 1, idle_after=0.2, slowest=0),
    "an override that ends, waits": Shape(
        "10/s burst 2", {"calls": 2, "overrides": 1}, sizers=TWO, slowest=0, other="5/s burst 1"
    ),
    "two quotas, leased": Shape(
        "10/s burst 12", {"calls": 2, "reloads": 2}, NOW, sizers=BOTH, slowest=0, other="20/s burst 6"
    ),
    "paused by one of two": Shape("10/s burst 6", {"calls": 2, "pauses": 1}, NOW, sizers=BOTH, slowest=0),
    "dry, paused, resumed": Shape("10/s burst 1", {"calls": 2, "pauses": 1, "resumes": 1}, WAITS, 1, slowest=0),
    "forked, waits": Shape("10/s burst 6", {"calls": 2, "forks": 1}, sizers=TWO, slowest=0, idle_after=0.2),
    "forked twice": Shape("10/s burst 12", {"calls": 2, "forks": 2}, NOW, 3, TWO, 0.2, slowest=0),
    "two slots, forked": SlotShape(2, {"calls": 2, "forks": 1}, WAIT),
    "one slot at two, a message is lost": SlotShape(1, {"calls": 2, "faults": 1}, WAIT),
    "one slot, died": SlotShape(1, {"calls": 2, "deaths": 1}, WAIT),
    "one slot, closed": SlotShape(1, {"calls": 2, "closes": 1}, WAIT),
    "one slot, the clock steps back": SlotShape(1, {"calls": 2, "backs": 1}, WAIT),
    "two slots at two": SlotShape(2, {"calls": 3}, WAIT),
    "two slots, forgotten": SlotShape(2, {"calls": 2, "losses": 1}, WAIT),
    "two lease again and again": Shape("20/s burst 12", {"calls": 3}, NOW, 2, TWO, 0.2, slowest=0),
    "two keys by slot, or one": ManyShape(TIGHT, (*EACH, CallKind({"b": 1}, waits=True)), {"calls": 3}, together=False),
    "two keys by slot, or two of one": ManyShape(
        TIGHT, (*EACH, CallKind({"a": 2}, waits=True)), {"calls": 2}, together=False, first=(CallKind({"b": 1}),)
    ),
    "two keys by slot at two": ManyShape(TIGHT, EACH, {"calls": 2}, 2, together=False),
    "two keys by slot at two, waits": ManyShape(TIGHT, EACH_WAITS, {"calls": 2}, 2, together=False),
    "two keys by slot, waits, interrupted": ManyShape(TIGHT, EACH_WAITS, {"calls": 2, "cancels": 1}, together=False),
    "two keys by slot, two calls, a message is lost": ManyShape(TIGHT, EACH, {"calls": 2, "faults": 1}, together=False),
    "one key leased, one spent, waits": ManyShape(
        AB, (CallKind({"a": 1, "b": 2}, waits=True),), {"calls": 2}, 1, FixedBatch(2), first=A
    ),
    "one key leased, one spent, a message is lost": ManyShape(
        AB, A_AND_TWO, {"calls": 1, "faults": 1}, 1, FixedBatch(2), first=A
    ),
    "two keys leased, two calls": ManyShape(
        AB, A_AND_TWO, {"calls": 2}, 1, FixedBatch(3), first=(*A, CallKind({"b": 1}))
    ),
}
"""Two minutes more."""
ALL: dict[str, AnyShape] = {
    "one slot at two, stopped": SlotShape(1, {"calls": 2, "stops": 1}, WAIT),
    "two lease, stopped": Shape("10/s burst 12", {"calls": 2, "stops": 1}, NOW, 2, TWO, 0.2),
    "some wait, owed": Shape("10/s burst 6", {"calls": 2, "debits": 1}, instances=1, sizers=TWO),
    "two spend, a message is lost": Shape("2/s burst 1", {"calls": 2, "faults": 1}),
    "two keys, spent at two, waits": ManyShape(TIGHT, EACH_WAITS, {"calls": 3}, 2),
    "three spend": Shape("2/s burst 1", {"calls": 3}, instances=3, slowest=0),
}
"""A night: those of two instances are larger than 40,000 states, and were not explored to their end yet."""


def shapes_of(size: Size) -> Mapping[str, AnyShape]:
    """Return the shapes of a size, and those of the smaller ones, by name."""
    return {**USUAL, **(DEEP if size != "usual" else {}), **(ALL if size == "all" else {})}

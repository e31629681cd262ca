"""Pass: leave for one call to be under way, as threads and tasks share it."""

import warnings
from enum import Enum, auto
from typing import TYPE_CHECKING

from batchlimit.concurrency.law import Outcome
from batchlimit.unique import Unique

if TYPE_CHECKING:
    from batchlimit.concurrency.gate import Gate
    from batchlimit.concurrency.locked_gate import LockedGate
    from batchlimit.concurrency.partition import Partition
    from batchlimit.concurrency.queue import Waiter


class State(Enum):
    """Where a permit is in its life."""

    ASKED = auto()
    WAITING = auto()
    HELD = auto()
    BYPASS = auto()
    OVER = auto()


# Looked up once: an attribute of an Enum class takes 30 ns.
ASKED, WAITING, HELD, BYPASS, OVER = State
SUCCESS = Outcome.SUCCESS


class BasePermit(Unique):
    """Leave for one call to be under way, until it is completed; use it as the context of a `with` block.

    The end of the block completes it: as a success, or as the limiter's `classify` says of the exception that ended it.
    `success`, `drop` and `ignore` complete it sooner, and say how, from any thread; what comes second changes nothing.
    A permit that nobody completes is released as ignored when it is collected, with a ResourceWarning.
    """

    __slots__ = (
        "__weakref__",
        "gate",
        "in_flight",
        "locked_gate",
        "operation",
        "place",
        "priority",
        "sheddable",
        "start_ns",
        "state",
        "told",
    )
    _instead = "complete it where it was acquired, and acquire another one there"

    gate: "Gate"
    place: "Partition"
    start_ns: int
    in_flight: int
    told: bool
    """Whether it was told to give up; set where it may be."""

    def __init__(self, locked_gate: "LockedGate", operation: str, priority: int, sheddable: bool) -> None:
        self.state = ASKED  # first: also one that is wrong is collected
        if sheddable and not isinstance(priority, int):
            raise TypeError(f"the priority of what may be shed must be a whole number, not {priority!r}")
        self.locked_gate = locked_gate
        self.operation = operation
        self.priority = priority
        self.sheddable = sheddable

    def __repr__(self) -> str:
        what = f" for {self.operation!r}" if self.operation else ""
        return f"<{type(self).__name__}{what}: {self.state.name.lower()}{', shed' if self.shed else ''}>"

    @property
    def shed(self) -> bool:
        """Whether this call was told to give up."""
        return self.sheddable and getattr(self, "told", False)

    def success(self) -> None:
        """The call was served."""
        self.locked_gate.leave(self, Outcome.SUCCESS)

    def drop(self) -> None:
        """Load made the call fail."""
        self.locked_gate.leave(self, Outcome.DROPPED)

    def ignore(self) -> None:
        """The call tells nothing about the load."""
        self.locked_gate.leave(self, Outcome.IGNORED)

    def give_up(self) -> None:
        """Hear that this call is to end, once; from any thread. RuntimeError: there is nobody to hear it."""

    def hold(self, gate: "Gate", waiter: "Waiter") -> None:
        """Be held, as the waiter that was served."""
        self.gate, self.place = gate, waiter.partition
        self.start_ns, self.in_flight = waiter.start_ns, waiter.in_flight
        waiter.served = False  # it is the permit now that is under way
        self.state = HELD

    def end(self) -> None:
        """Be over, where nothing was held; RuntimeError if nothing was entered with yet."""
        if self.state is ASKED or self.state is WAITING:
            raise RuntimeError(f"{self!r} cannot be completed: nobody entered with it; was it awaited?")
        self.state = OVER

    def __del__(self) -> None:
        try:
            held = self.state is HELD
        except AttributeError:  # a signal handler raised before __init__ began
            return
        if held:
            self.locked_gate.abandon(self)  # first: a warning may be an error
            warnings.warn(f"{self!r} was never completed", ResourceWarning, stacklevel=2, source=self)

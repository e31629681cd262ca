"""What the watchers of the machine see, told to the law once a period; and what is shed if it persists."""

from collections.abc import Sequence

from batchlimit.core.shedding import Shedder, Shedding
from batchlimit.core.tally import ConcurrencyStatistics
from batchlimit.doorway.door import Door
from batchlimit.watchers.base import Watcher
from batchlimit.watchers.rounds import Rounds


class Calibration:
    """Watchers that are polled once in `every` seconds, from when it is made until it is stopped."""

    def __init__(self, door: Door, watchers: Sequence[Watcher], every: float, shedding: Shedding | None) -> None:
        if shedding is not None and not watchers:
            raise ValueError("shedding needs watchers, whose reasons to back off persist")
        self._door = door
        self._shedder = None if shedding is None else Shedder(shedding)
        self._rounds = Rounds(watchers, self._tell, every=every)
        self._rounds.start()

    def __repr__(self) -> str:
        return f"<Calibration by {self._rounds!r}>"

    def stop(self, seconds: float = 1.0) -> None:
        """Watch no more; wait for the round that is under way, so long at most."""
        self._rounds.stop(seconds)

    def retire(self) -> None:
        """Watch no more, soon: for a limiter that was dropped unclosed. Takes no lock."""
        self._rounds.retire()

    def statistics(self) -> ConcurrencyStatistics:
        """Return what the door counted, and the watchers."""
        return self._door.statistics(self._rounds.statistics())

    def _tell(self, events: tuple[str, ...]) -> None:
        try:
            self._door.calibrate(events)
        finally:  # a law that fails is no reason to keep what the memory is full of
            if self._shedder is not None:
                self._shedder.note(events)
                self._door.shed(self._shedder.choose)

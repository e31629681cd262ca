"""Several keys at once: all of them are charged, or none."""

from collections.abc import Callable, Mapping

from batchlimit.core.claim import NOW, Admit, Claim, Refuse, half_of
from batchlimit.errors import RateLimited
from batchlimit.sync.slot import Slot
from batchlimit.sync.waker import Waker


class Bundle:
    """What one caller holds of several keys, until it holds all that it wants.

    Whoever is refused at one key returns what it holds of the others before it waits, and waits at that one alone. Only
    when it was served there, it waits for the others too, for half of the time that those tokens are good: so it comes
    through where all keys have a line, and what it holds meanwhile does not expire. It keeps its place in each line.
    """

    def __init__(self, costs: Mapping[str, int], find: Callable[[str], Slot], clock: Callable[[], float]) -> None:
        self._costs, self._find, self._clock = costs, find, clock
        self._held: list[tuple[Slot, Claim]] = []
        self._places: dict[Slot, int] = {}  # not by key: a slot may retire, and the next one's line counts anew

    def __repr__(self) -> str:
        return f"<Bundle of {len(self._held)} of {len(self._costs)} keys>"

    def acquire(self, until: float) -> None:
        """Wait until all are charged; RateLimited, by the key that is short, as soon as that cannot be in time."""
        short = self._try(None, until)
        while short is not None:
            short = self._try(short, until)

    def _try(self, behind: str | None, until: float) -> str | None:
        """Take all, waiting in line at the one that was short before; return the one that is short now."""
        patience = NOW
        try:
            for key in self._order(behind):
                verdict = self._hold(key, until if key == behind else patience)
                if isinstance(verdict, Refuse):
                    if key == behind or self._clock() + verdict.retry_after > until:
                        raise RateLimited(key, verdict.retry_after)
                    return key
                if key == behind:
                    patience = half_of(verdict, until, self._clock())
            return self._confirm()
        finally:
            self._leave()

    def _order(self, behind: str | None) -> list[str]:
        """First what is waited for, then what is refused by memory, or admitted by it; the store is asked last.

        By name where it is all the same: callers who want the same keys meet at the first of them.
        """
        now = self._clock()

        def rank(key: str) -> tuple[int, str]:
            return self._find(key).reservoir.prospect(self._costs[key], now) * (key != behind), key

        return sorted(self._costs, key=rank)

    def _hold(self, key: str, until: float) -> Admit | Refuse:
        while True:
            slot, waker = self._find(key), Waker()
            claim = Claim(self._costs[key], until, waker, tentative=True)
            claim.number = self._places.get(slot, 0)
            self._held.append((slot, claim))  # before it is given anything: an interrupt falls where it will
            if slot.hold(claim, waker):
                self._places[slot] = claim.number
                assert isinstance(claim.verdict, Admit | Refuse)
                return claim.verdict
            self._held.pop()  # the slot had just retired

    def _confirm(self) -> str | None:
        """Spend all that is held; or return the key whose tokens have expired by now."""
        now = self._clock()
        for slot, claim in self._held:
            if not claim.is_good(now):
                return slot.key
        for slot, claim in self._held:
            slot.confirm(claim)
        self._held.clear()
        return None

    def _leave(self) -> None:
        while self._held:
            slot, claim = self._held.pop()
            slot.leave(claim)

"""Several keys at once: all of them are charged, or none."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from batchlimit.blocking import Event, warn_in_loop
from batchlimit.decision import Decision
from batchlimit.quota.key import stored
from batchlimit.reservoir.admission_result import AdmissionResult
from batchlimit.reservoir.forecast import Prospect
from batchlimit.reservoir.waiter import Admit, Fetch, Refuse, Retired, Waiter, half_of
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.sync.key_entry import TOGETHER, KeyEntry, ask_together
from batchlimit.waiting import NO_WAIT


class AcquireAll:
    """What one caller holds of several keys, until it holds all that it wants.

    Whoever is refused at one key returns what it holds of the others before it waits, and waits at that one alone. Only
    when it was served there, it waits for the others too, for half of the time that those tokens are good: so it comes
    through where all keys have a line, and what it holds meanwhile does not expire. It keeps its place in each line.
    """

    def __init__(
        self, costs: Mapping[str, int], find: Callable[[str], KeyEntry], store: GuardedStore, clock: Callable[[], float]
    ) -> None:
        self._costs, self._find, self._store, self._clock = costs, find, store, clock
        self._begun: dict[str, tuple[KeyEntry, Waiter, Event]] = {}  # asked for together
        self._held: list[tuple[KeyEntry, Waiter]] = []
        self._charged: list[tuple[KeyEntry, Waiter]] = []
        self._places: dict[
            KeyEntry, int
        ] = {}  # not by key: a key entry may retire, and the next one's line counts anew

    def __repr__(self) -> str:
        return f"<Bundle of {len(self._held)} of {len(self._costs)} keys>"

    def acquire(self, until: float) -> None:
        """Wait until all are charged; RateLimited, by the key that is short, as soon as that cannot be in time."""
        short = self._try(None, until)
        while short is not None:
            short = self._try(short, until)

    def decisions(self) -> dict[str, Decision]:
        """Return the Decision on each key, once all are charged."""
        results = {entry.key: _result(entry, waiter) for entry, waiter in self._charged}
        now = self._clock()
        return {key: results[stored(key)].decision(now) for key in self._costs}

    def _try(self, behind: str | None, until: float) -> str | None:
        """Take all, waiting in line at the one that was short before; return the one that is short now."""
        try:
            patience = NO_WAIT if behind is None else self._wait_at(behind, until)
            known, cold = self._order(behind)
            if (short := self._short_of(known, patience, until)) is not None:
                return short
            if behind is None:  # else somebody may wait for us in one line while we wait in another
                self._ask_together(cold)
            short = self._short_of(cold, patience, until)
            return self._confirm() if short is None else short
        finally:
            self._begun.clear()
            self._leave()

    def _wait_at(self, key: str, until: float) -> float:
        """Stand in line at this key, holding nothing yet; return until when to wait for the others then."""
        settled = self._hold(key, until)
        if isinstance(settled.verdict, Refuse):
            raise settled.refusal(key, self._clock())
        return half_of(settled.verdict, until, self._clock())

    def _short_of(self, keys: Iterable[str], patience: float, until: float) -> str | None:
        """Take these, up to the first one that refuses; return that one, if there is time to wait for it."""
        for key in keys:
            settled = self._hold(key, patience)
            if isinstance(settled.verdict, Refuse):
                if self._clock() + settled.verdict.retry_after > until:
                    raise settled.refusal(key, self._clock())
                return key
        return None

    def _order(self, behind: str | None) -> tuple[list[str], list[str]]:
        """Return what is refused by memory and then what is admitted by it; and those for which the store is asked.

        By name where it is all the same: callers who want the same keys meet at the first of them.
        """
        now = self._clock()
        prospects = {
            key: self._find(key).reservoir.forecast.prospect(cost, now)
            for key, cost in self._costs.items()
            if key != behind
        }
        order = sorted(prospects, key=lambda key: (prospects[key], key))
        cold = [key for key in order if prospects[key] == Prospect.UNKNOWN]
        return order[: len(order) - len(cold)], cold

    def _ask_together(self, keys: Sequence[str]) -> None:
        """Ask in one round trip for those of several keys at which nobody is before us."""
        if len(keys) == 1 or not self._store.is_pipelined:
            return
        warn_in_loop()
        for some in (keys[i : i + TOGETHER] for i in range(0, len(keys), TOGETHER)):
            asks = [ask for key in some if (ask := self._begin(key)) is not None]
            if asks:
                ask_together(self._store, asks)

    def _begin(self, key: str) -> tuple[KeyEntry, Fetch, Waiter] | None:
        entry, event = self._find(key), Event()
        waiter = Waiter(self._costs[key], NO_WAIT, event, tentative=True)
        self._held.append((entry, waiter))  # before it is given anything: an interrupt falls where it will
        if (fetch := entry.begin(waiter)) is None:
            self._held.pop()
            return None
        self._places[entry] = waiter.number
        self._begun[key] = entry, waiter, event
        return entry, fetch, waiter

    def _hold(self, key: str, until: float) -> AdmissionResult:
        if key in self._begun:
            entry, waiter, event = self._begun.pop(key)
            verdict, waited = entry.finish(waiter, event)
            if not isinstance(verdict, Retired):
                return AdmissionResult(verdict, waited, waiter.asked > 0, entry.reservoir)
            self._held.remove((entry, waiter))
        while True:
            entry, event = self._find(key), Event()
            waiter = Waiter(self._costs[key], until, event, tentative=True)
            waiter.number = self._places.get(entry, 0)
            self._held.append((entry, waiter))  # before it is given anything: an interrupt falls where it will
            if entry.hold(waiter, event):
                self._places[entry] = waiter.number
                return _result(entry, waiter)
            self._held.pop()  # the key entry had just retired

    def _confirm(self) -> str | None:
        """Spend all that is held; or return the key whose tokens have expired by now."""
        now = self._clock()
        for entry, waiter in self._held:
            if not waiter.is_good(now):
                return next(key for key in self._costs if stored(key) == entry.key)
        for entry, waiter in self._held:
            entry.confirm(waiter)
        self._charged, self._held = self._held, []
        return None

    def _leave(self) -> None:
        while self._held:
            entry, waiter = self._held.pop()
            entry.leave(waiter)


def _result(entry: KeyEntry, waiter: Waiter) -> AdmissionResult:
    assert isinstance(waiter.verdict, Admit | Refuse)
    return AdmissionResult(waiter.verdict, True, waiter.asked > 0, entry.reservoir)

"""What all keys of one limiter did, by policy: those that are gone, and those in use, however many there are."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import add, length_hint
from typing import Protocol

from batchlimit.histogram import Durations, Histogram
from batchlimit.quota.policy import OTHER, Policies
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.fallback.fallback import NO_FALLBACK
from batchlimit.reservoir.overdraft import NO_OVERDRAFT
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.statistics import Figures, PolicyStatistics

PART = 512
"""Keys that are read at once, in about half a millisecond: then other threads and tasks have their turn."""
_COUNTS = 6
_GAUGES = 3
"""Of the figures of a key the first six count what happened, as does all from the tenth to the last but one."""
_NOTHING: Figures = (0,) * 14
_RARE = (1, 3, 4, 5, 7, 8, 10, 11, 12)
"""The places of those that are 0 at nearly every key."""


class Counted(Protocol):
    """A key entry."""

    reservoir: Reservoir

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while it is read."""
        ...


class Tallies:
    """What the keys did that are not in use any more: one row of figures a policy."""

    __slots__ = ("_asks", "_policies", "_rows", "_tokens", "_waits")

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._rows = [_NOTHING] * len(policies.names)
        self._waits: dict[int, Durations] = {}
        self._asks, self._tokens = [0] * len(policies.names), [0] * len(policies.names)

    def __repr__(self) -> str:
        return f"<Tallies of {self._policies!r}>"

    def remember(self, reservoir: Reservoir) -> None:
        """Count what a key did that leaves."""
        figures = reservoir.state.figures()
        done = (*figures[:_COUNTS], *(0,) * _GAUGES, *figures[_COUNTS + _GAUGES : -1], 0)
        number = self._policies.number(reservoir.state.code)
        self._rows[number] = tuple(map(add, self._rows[number], done))

    def admitted(self, quota: Quota, tokens: int) -> None:
        """Count one ask of a key that is not in use, which the store admitted."""
        number = self._policies.number(quota)
        self._asks[number] += 1
        self._tokens[number] += tokens

    def waits(self, quota: Quota) -> Durations:
        """Return what counts how long the callers of a key wait, by the quota that the code has for it."""
        number = self._policies.number(quota)
        if (found := self._waits.get(number)) is None:
            found = self._waits.setdefault(number, Durations())
        return found

    def census(self, entries: Sequence[Counted]) -> "Census":
        """Return what is counted so far; these entries are to be counted as well."""
        rows = []
        for row, asks, tokens in zip(self._rows, self._asks, self._tokens, strict=True):
            rows.append(list(map(add, row, (tokens, 0, asks, 0, 0, 0, 0, 0, 0, tokens, 0, 0, 0, 0))))
        waits = {number: each.read() for number, each in list(self._waits.items())}
        return Census(self._policies, rows, entries, waits)


class Census:
    """A count of all keys at one moment: the sums of those that were gone by then, and the entries that were in use.

    An entry that retires meanwhile keeps its figures: each key is counted once, and no sum ever falls.
    """

    def __init__(
        self, policies: Policies, rows: list[list[int]], entries: Sequence[Counted], waits: Mapping[int, Histogram]
    ) -> None:
        self._policies, self._rows, self._entries, self._waits = policies, rows, entries, waits
        self._keys = [0] * len(rows)
        self.keys = self.asks = 0  # in memory; asks in flight for keys that are not in use

    def __repr__(self) -> str:
        return f"<Census of {len(self._entries)} keys in use>"

    def take(self, pause: Callable[[], None]) -> None:
        """Count all entries; `pause` is called after each part of them, but for the last."""
        for start in range(0, len(self._entries), PART):
            if start:
                pause()
            self._count(self._entries[start : start + PART])

    @property
    def total(self) -> Figures:
        """The figures of all keys."""
        return tuple(map(sum, zip(*self._rows, strict=True)))

    @property
    def policies(self) -> dict[str, PolicyStatistics]:
        """The statistics by policy; "other" only if anything was counted there."""
        found = {name: self._policy(number) for number, name in enumerate(self._policies.names)}
        if self._policies.names[-1] == OTHER and not self._keys[-1] and not any(self._rows[-1]):
            del found[OTHER]
        return found

    def _count(self, entries: Sequence[Counted]) -> None:
        # KeyState.figures flattened, and what is 0 at nearly every key looked at alone: the call, a tuple and its sum
        # took as long as all this. tests/keyspace/test_census.py compares the two.
        numbers, keys, rows = self._policies.numbers, self._keys, self._rows
        for entry in entries:
            state = entry.reservoir.state
            number = numbers[id(state.code)]
            keys[number] += 1
            row = rows[number]
            with entry.lock:
                tokens, lease, view = state.tokens, state.lease, state.view
                here = tokens.free + length_hint(tokens.lock_free)
                row[0] += tokens.came - here
                row[2] += state.calls
                row[6] += here + lease.reserved_for_waiters + lease.pending
                row[9] += lease.served
                if view.level * 5 < state.largest_cost:
                    row[13] += view.is_low(state.largest_cost)
                is_plain = state.fallback is NO_FALLBACK and state.overdraft is NO_OVERDRAFT
                if not is_plain or tokens.refused or view.losses or state.queue.cost:
                    _add_rare(row, state.figures())

    def _policy(self, number: int) -> PolicyStatistics:
        row = self._rows[number]
        admitted, refused, _, fallback, _, opened, _, waiting, _, from_store, by_store, timed_out, shadow, low = row
        done = (admitted, from_store, fallback, opened, shadow, refused, by_store, timed_out)
        return PolicyStatistics(self._keys[number], low, *done, waiting, self._waits.get(number, Histogram()))


def _add_rare(row: list[int], figures: Figures) -> None:
    for place in _RARE:
        row[place] += figures[place]

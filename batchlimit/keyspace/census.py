"""What all keys of one limiter did, by policy: those that are gone, and those in use, however many there are."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import reduce
from operator import add

from batchlimit.base.histogram import Durations, Histogram
from batchlimit.keyspace.pages import SIZE, Counted, Page, Pages
from batchlimit.quota.lookup import OTHER, Policies
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.fallback import NO_FALLBACK
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.overdraft import NO_OVERDRAFT
from batchlimit.reservoir.statistics import Figures, PolicyStatistics

_RARE = (1, 3, 4, 5, 7, 8, 10, 11, 12)
"""The places of those figures that are 0 at nearly every key."""
_TRIES = 100
"""So many times another thread gets a turn to end a move of tokens that it had begun."""


class Tallies:
    """What is counted of the keys of one limiter: their pages, and the spends that needed no entry."""

    __slots__ = ("_pages", "_policies", "_spends", "_waits", "enter", "leave")

    def __init__(self, policies: Policies) -> None:
        self._policies, self._pages = policies, Pages(policies)
        self.enter, self.leave = self._pages.enter, self._pages.leave
        self._waits: dict[int, list[Durations]] = {}  # the first counts on; the others are of names that are gone
        self._spends = [[0, 0, 0] for _ in policies.names]  # by policy: how many, their tokens, buckets begun anew

    def move(self, entry: Counted, quota: Quota) -> None:
        """Have a key go on with what it did left where it was counted; from now on it is counted by this quota."""
        self._pages.move(entry, self._policies.number(quota))

    def renumber(self, policies: Policies) -> None:
        """Count by other policies; those of before that have no name among them are "other" from now on."""
        numbers = {name: number for number, name in enumerate(policies.names)}
        to = [numbers.get(name, len(numbers) - 1) for name in self._policies.names]
        before, self._spends = self._spends, [[0, 0, 0] for _ in numbers]
        for new, row in zip(to, before, strict=True):
            self._spends[new] = list(map(add, self._spends[new], row))
        self._policies = policies
        known, self._waits = self._waits, {}
        for old, some in known.items():
            self._waits.setdefault(to[old], []).extend(some)
        self._pages.renumber(policies, to)

    def admitted(self, quota: Quota, tokens: int, is_lost: bool) -> None:
        """Count one spend at a key that is not in use, which the store admitted; `is_lost`: of a bucket begun anew."""
        row = self._spends[self._policies[id(quota)]]
        row[0] += 1
        row[1] += tokens
        if is_lost:
            row[2] += 1

    def waits(self, quota: Quota) -> Durations:
        """Return what counts how long the callers of a key wait, by the quota that the code has for it."""
        number = self._policies.number(quota)
        if (found := self._waits.get(number)) is None:
            found = self._waits.setdefault(number, [Durations()])
        return found[0]

    def census(self) -> "Census":
        """Begin to count."""
        rows = [[tokens, 0, asks, 0, losses, *(0,) * 4, tokens, *(0,) * 4] for asks, tokens, losses in self._spends]
        waits = {
            number: reduce(Histogram.plus, map(Durations.read, some)) for number, some in list(self._waits.items())
        }
        return Census(self._policies, rows, list(self._pages.all), waits)


class Census:
    """A count of all keys, page by page. A key that retires meanwhile is counted once, and no sum ever falls."""

    keys: int  # in memory
    asks: int  # those that spend just now, and are not in use

    def __init__(
        self, policies: Policies, rows: list[list[int]], pages: Sequence[Page], waits: Mapping[int, Histogram]
    ) -> None:
        self._policies, self._rows, self._pages, self._waits = policies, rows, pages, waits
        self._keys = [0] * len(rows)

    def take(self, pause: Callable[[], None]) -> None:
        """Count the entries of all pages; `pause` is called whenever as many were counted as a page has at most."""
        counted = 0
        for page in self._pages:
            if counted + len(page) > SIZE:
                pause()
                counted = 0
            counted += self._count(page, pause)

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

    def _count(self, page: Page, pause: Callable[[], None]) -> int:
        entries, past = page.look()
        row = self._rows[page.number] = list(map(add, self._rows[page.number], past))
        self._keys[page.number] += len(entries)
        _add_up(row, entries, pause)
        return len(entries)

    def _policy(self, number: int) -> PolicyStatistics:
        row = self._rows[number]
        admitted, refused, _, fallback, _, opened, _, waiting, _, from_store, by_store, timed_out, shadow, low = row
        done = (admitted, from_store, fallback, opened, shadow, refused, by_store, timed_out)
        return PolicyStatistics(self._keys[number], low, *done, waiting, self._waits.get(number, Histogram()))


def _add_up(row: list[int], entries: Mapping[Counted, KeyState], pause: Callable[[], None]) -> None:
    # KeyState.figures flattened, and what is 0 at nearly every key looked at alone: the call, a tuple and its sum took
    # as long as all this. So did a lock for each entry: it lies elsewhere in memory. Instead the tokens are looked at
    # twice: if none moved meanwhile, what was spent is as of a moment in between, for hits only take what is laid out.
    # Where tokens are free nobody waits: the queue, which lies elsewhere too, is looked at only where none are.
    # The tokens served are read last, so memory is never said to have admitted more than it did.
    # tests/keyspace/test_census.py compares this with KeyState.figures, and looks between any two steps of a move.
    spent = calls = held = served = low = 0
    for entry, state in entries.items():
        tokens, lease, view = state.tokens, state.lease, state.view
        came, free, laid_out = tokens.came, tokens.free, tokens.lock_free
        here = free + laid_out.__length_hint__()
        if tokens.is_moving or tokens.lock_free is not laid_out or tokens.free is not free or tokens.came is not came:
            came, here = _look_again(entry, pause)
        spent += came - here
        calls += state.calls
        held += here + lease.reserved_for_waiters + lease.pending
        served += lease.served
        if view.level * 5 < state.largest_cost:
            low += view.is_low(state.largest_cost)
        is_plain = state.fallback is NO_FALLBACK and state.overdraft is NO_OVERDRAFT
        if not is_plain or tokens.refused or view.losses or (here == 0 and state.queue.cost):
            _add_rare(row, entry)
    for place, value in ((0, spent), (2, calls), (6, held), (9, served), (13, low)):
        row[place] += value


def _look_again(entry: Counted, pause: Callable[[], None]) -> tuple[int, int]:
    """Return the tokens that came to an entry, and those that are there, while none moves."""
    tokens = entry.reservoir.state.tokens
    with entry.lock or nullcontext():
        for _ in range(_TRIES if entry.lock is None else 0):
            if not tokens.is_moving:
                break
            pause()
        return tokens.came, tokens.available


def _add_rare(row: list[int], entry: Counted) -> None:
    with entry.lock or nullcontext():
        figures = entry.reservoir.state.figures()
    for place in _RARE:
        row[place] += figures[place]

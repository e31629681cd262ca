"""What all keys of one limiter did, by policy: those that are gone, and those in use, however many there are.

Those in use lie in pages, which are counted one at a time: no count takes hold of all keys at once.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import reduce
from operator import add, sub
from typing import TYPE_CHECKING

from batchlimit.base.histogram import Durations, Histogram
from batchlimit.base.redaction import shown
from batchlimit.quota.lookup import OTHER, Policies
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.fallback import NO_FALLBACK
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.overdraft import NO_OVERDRAFT
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.statistics import Figures, PolicyStatistics
from batchlimit.reservoir.tokens import FreeTokens

if TYPE_CHECKING:
    from batchlimit.base.blocking import OwnLock

SIZE = 512
"""Keys of one page: they are read in about a quarter of a millisecond. Then other threads have their turn."""
COUNTS, GAUGES = 6, 3
"""Of the figures of a key the first six count what happened, as does all from the tenth to the last but one."""
NOTHING: Figures = (0,) * 14
_LOOKS = 3
"""A loop may let an entry go while another thread looks at its page: that looks again, so many times at most."""
_RARE = (1, 3, 4, 5, 7, 8, 10, 11, 12)
"""The places of those figures that are 0 at nearly every key."""
_TRIES = 100
"""So many times another thread gets a turn to end a move of tokens that it had begun."""


class BaseKeyEntry:
    """A key in use, in either API: its reservoir, and what the keyspace keeps with it."""

    __slots__ = ("due", "key", "page", "reservoir", "seen", "tokens")
    key: str
    """As `stored` returns it."""
    reservoir: Reservoir
    tokens: FreeTokens
    """Those of its reservoir: one look less for every hit."""
    lock: "OwnLock | None" = None
    """Held while it is read; None: nobody can be kept out."""
    page: "Page"
    seen: int
    """The value of `tokens.uses` when the hand of the ClockCache last examined it."""

    def __repr__(self) -> str:
        return f"<KeyEntry {shown(self.key)}: {self.reservoir.state}>"

    def evict(self) -> bool:
        """Retire to make room, unless a caller needs this key entry."""
        raise NotImplementedError


class Page:
    """Some key entries of one policy, and the sum of what those did that have left this page.

    A key entry stays on its page. So the counts of a page never fall, and neither does a sum over all pages, though
    entries leave while it is made.
    """

    __slots__ = ("_begun", "_entries", "_left", "_past", "number")

    def __init__(self, number: int) -> None:
        """`number` is that of the policy."""
        self.number = number
        self._entries: dict[BaseKeyEntry, KeyState] = {}  # the states too: to look for them costs a count the most
        self._past = NOTHING
        self._begun = self._left = 0  # how many entries began to leave, and how many have left

    def __len__(self) -> int:
        return len(self._entries)

    def enter(self, entry: BaseKeyEntry) -> None:
        """Add an entry."""
        self._entries[entry] = entry.reservoir.state
        entry.page = self

    def leave(self, entry: BaseKeyEntry) -> None:
        """Remove an entry, once, and keep what it did. No signal handler raises within the last four lines."""
        if entry not in self._entries:
            return
        with entry.lock or nullcontext():
            figures = entry.reservoir.state.figures()
        past = tuple(map(add, self._past, done_of(figures)))
        self._begun += 1
        del self._entries[entry]
        self._past = past
        self._left = self._begun

    def come(self, entry: BaseKeyEntry) -> None:
        """Add an entry that another page has counted so far."""
        done = done_of(entry.reservoir.state.figures())
        self._past = tuple(map(sub, self._past, done))  # it is in the figures of the entry as well
        self.enter(entry)

    def look(self) -> tuple[Mapping[BaseKeyEntry, KeyState], Figures]:
        """Return the entries on the page at one moment, with their states, and the sum of those that were gone by then.

        An entry that leaves later keeps its figures: so each is counted once.
        """
        left, found = self._left, (self._entries.copy(), self._past)
        for _ in range(_LOOKS):
            if left == self._begun:
                break
            left, found = self._left, (self._entries.copy(), self._past)
        return found


def done_of(figures: Figures) -> Figures:
    """Return the figures of a key, without those that only say what is here now."""
    return (*figures[:COUNTS], *(0,) * GAUGES, *figures[COUNTS + GAUGES : -1], 0)


class Tallies:
    """What is counted of the keys of one limiter: their pages, and the spends that needed no entry.

    Each method requires that nobody else calls one, and `renumber` that nobody counts.
    """

    __slots__ = ("_roomy", "_waits", "pages", "policies", "spends")

    def __init__(self, policies: Policies) -> None:
        self.policies = policies
        self.pages: list[Page] = []
        self._roomy: list[list[Page]] = [[] for _ in policies.names]  # by policy, those that are not full
        self._waits: dict[int, list[Durations]] = {}  # the first counts on; the others are of names that are gone
        self.spends = [[0, 0, 0] for _ in policies.names]
        """By policy: how many calls the store admitted at keys not in use, their tokens, and buckets begun anew."""

    def enter(self, entry: BaseKeyEntry) -> None:
        """Put a new entry on a page of its policy that has room."""
        self._roomy_of(self.policies.number(entry.reservoir.state.code)).enter(entry)
        self._see_room(entry.page)

    def leave(self, entry: BaseKeyEntry) -> None:
        """Remove an entry, once; what it did stays counted."""
        page = entry.page
        was_full = len(page) == SIZE
        page.leave(entry)
        if was_full and len(page) < SIZE:
            self._roomy[page.number].append(page)

    def move(self, entry: BaseKeyEntry, quota: Quota) -> None:
        """Have a key counted by this quota from now on; what it did stays counted where it was. Requires its lock."""
        if entry.page.number != (number := self.policies.number(quota)):
            self.leave(entry)
            self._roomy_of(number).come(entry)
            self._see_room(entry.page)

    def renumber(self, policies: Policies) -> None:
        """Count by other policies; those of before that have no name among them are "other" from now on."""
        numbers = {name: number for number, name in enumerate(policies.names)}
        to = [numbers.get(name, len(numbers) - 1) for name in self.policies.names]
        spends, roomy = [[0, 0, 0] for _ in numbers], list[list[Page]]([] for _ in numbers)
        for new, row, pages in zip(to, self.spends, self._roomy, strict=True):
            spends[new] = list(map(add, spends[new], row))
            roomy[new] += pages
        self.policies, self.spends, self._roomy = policies, spends, roomy
        known, self._waits = self._waits, {}
        for old, some in known.items():
            self._waits.setdefault(to[old], []).extend(some)
        for page in self.pages:
            page.number = to[page.number]

    def waits(self, quota: Quota) -> Durations:
        """Return what counts how long the callers of a key wait, by the quota that the code has for it."""
        number = self.policies.number(quota)
        if (found := self._waits.get(number)) is None:
            found = self._waits.setdefault(number, [Durations()])
        return found[0]

    def census(self) -> "Census":
        """Begin to count."""
        rows = [[tokens, 0, asks, 0, losses, *(0,) * 4, tokens, *(0,) * 4] for asks, tokens, losses in self.spends]
        waits = {
            number: reduce(Histogram.plus, map(Durations.read, some)) for number, some in list(self._waits.items())
        }
        return Census(self.policies, rows, list(self.pages), waits)

    def _roomy_of(self, number: int) -> Page:
        roomy = self._roomy[number]
        if not roomy:
            roomy.append(Page(number))
            self.pages.append(roomy[-1])
        return roomy[-1]

    def _see_room(self, page: Page) -> None:
        if len(page) == SIZE:
            self._roomy[page.number].pop()  # the last one: that is where entries go


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
            entries, past = page.look()
            row = self._rows[page.number] = list(map(add, self._rows[page.number], past))
            self._keys[page.number] += len(entries)
            counted += len(entries)
            _add_up(row, entries, pause)

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

    def _policy(self, number: int) -> PolicyStatistics:
        row = self._rows[number]
        admitted, refused, _, fallback, _, opened, _, waiting, _, from_store, by_store, timed_out, shadow, low = row
        done = (admitted, from_store, fallback, opened, shadow, refused, by_store, timed_out)
        return PolicyStatistics(self._keys[number], low, *done, waiting, self._waits.get(number, Histogram()))


def _add_up(row: list[int], entries: Mapping[BaseKeyEntry, KeyState], pause: Callable[[], None]) -> None:
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
            with entry.lock or nullcontext():
                figures = state.figures()
            for place in _RARE:
                row[place] += figures[place]
    for place, value in ((0, spent), (2, calls), (6, held), (9, served), (13, low)):
        row[place] += value


def _look_again(entry: BaseKeyEntry, pause: Callable[[], None]) -> tuple[int, int]:
    """Return the tokens that came to an entry, and those that are there, while none moves."""
    tokens = entry.reservoir.state.tokens
    with entry.lock or nullcontext():
        for _ in range(_TRIES if entry.lock is None else 0):
            if not tokens.is_moving:
                break
            pause()
        return tokens.came, tokens.available

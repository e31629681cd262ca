"""The key entries in use, in pages that are counted one at a time: no count takes hold of all keys at once."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from operator import add, sub
from typing import TYPE_CHECKING, Protocol

from batchlimit.quota.lookup import Policies
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.statistics import Figures

if TYPE_CHECKING:
    from batchlimit.base.blocking import OwnLock

SIZE = 512
"""Keys of one page: they are read in about a quarter of a millisecond. Then other threads have their turn."""
COUNTS, GAUGES = 6, 3
"""Of the figures of a key the first six count what happened, as does all from the tenth to the last but one."""
NOTHING: Figures = (0,) * 14
_TRIES = 3
"""A loop may let an entry go while another thread looks at its page: that looks again, so many times at most."""


class Counted(Protocol):
    """A key entry."""

    reservoir: Reservoir
    page: "Page"
    """Belongs to the pages."""

    @property
    def lock(self) -> "OwnLock | None":
        """Held while it is read; None: nobody can be kept out."""
        ...


class Page:
    """Some key entries of one policy, and the sum of what those did that have left this page.

    A key entry stays on its page. So the counts of a page never fall, and neither does a sum over all pages, though
    entries leave while it is made.
    """

    __slots__ = ("_begun", "_entries", "_left", "_past", "number")

    def __init__(self, number: int) -> None:
        """`number` is that of the policy."""
        self.number = number
        self._entries: dict[Counted, KeyState] = {}  # the states too: to look for them costs a count the most
        self._past = NOTHING
        self._begun = self._left = 0  # how many entries began to leave, and how many have left

    def __repr__(self) -> str:
        return f"<Page of {len(self)} keys>"

    def __len__(self) -> int:
        return len(self._entries)

    def enter(self, entry: Counted) -> None:
        """Add an entry."""
        self._entries[entry] = entry.reservoir.state
        entry.page = self

    def leave(self, entry: Counted) -> None:
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

    def come(self, entry: Counted) -> None:
        """Add an entry that another page has counted so far."""
        done = done_of(entry.reservoir.state.figures())
        self._past = tuple(map(sub, self._past, done))  # it is in the figures of the entry as well
        self.enter(entry)

    def look(self) -> tuple[Mapping[Counted, KeyState], Figures]:
        """Return the entries on the page at one moment, with their states, and the sum of those that were gone by then.

        An entry that leaves later keeps its figures: so each is counted once.
        """
        left, found = self._left, (self._entries.copy(), self._past)
        for _ in range(_TRIES):
            if left == self._begun:
                break
            left, found = self._left, (self._entries.copy(), self._past)
        return found


def done_of(figures: Figures) -> Figures:
    """Return the figures of a key, without those that only say what is here now."""
    return (*figures[:COUNTS], *(0,) * GAUGES, *figures[COUNTS + GAUGES : -1], 0)


class Pages:
    """All pages of one limiter. Each method requires that nobody else calls one, and `renumber` that nobody counts."""

    __slots__ = ("_policies", "_roomy", "all")

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self.all: list[Page] = []
        self._roomy: list[list[Page]] = [[] for _ in policies.names]  # by policy, those that are not full

    def __repr__(self) -> str:
        return f"<{len(self.all)} Pages>"

    def enter(self, entry: Counted) -> None:
        """Put a new entry on a page of its policy that has room."""
        self._roomy_of(self._policies.number(entry.reservoir.state.code)).enter(entry)
        self._see_room(entry.page)

    def move(self, entry: Counted, number: int) -> None:
        """Have an entry counted by another policy from now on; requires its lock."""
        if entry.page.number != number:
            self.leave(entry)
            self._roomy_of(number).come(entry)
            self._see_room(entry.page)

    def renumber(self, policies: Policies, to: Sequence[int]) -> None:
        """Number the pages by other policies; `to` has the new number for each old one."""
        roomy: list[list[Page]] = [[] for _ in policies.names]
        for old, pages in enumerate(self._roomy):
            roomy[to[old]] += pages
        self._policies, self._roomy = policies, roomy
        for page in self.all:
            page.number = to[page.number]

    def _roomy_of(self, number: int) -> Page:
        roomy = self._roomy[number]
        if not roomy:
            roomy.append(Page(number))
            self.all.append(roomy[-1])
        return roomy[-1]

    def _see_room(self, page: Page) -> None:
        if len(page) == SIZE:
            self._roomy[page.number].pop()  # the last one: that is where entries go

    def leave(self, entry: Counted) -> None:
        """Remove an entry, once."""
        page = entry.page
        was_full = len(page) == SIZE
        page.leave(entry)
        if was_full and len(page) < SIZE:
            self._roomy[page.number].append(page)

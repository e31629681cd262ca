"""Who waits for tokens, in order of arrival, and whom to wake."""

from bisect import bisect_left
from collections.abc import Iterator

from batchlimit.core.claim import NOBODY, Claim, Verdict

_NONE: list[Claim] = []
"""Where there is nobody: one for all lines, for most are empty, and two lists of their own took 112 bytes a key."""


class Line:
    """A queue of claims. Its leader watches the clock, and fetches, for all: so there is always one who is awake."""

    __slots__ = ("_awake", "_claims", "_last", "cost")

    def __init__(self) -> None:
        self._claims = self._awake = _NONE
        self._last = 0
        self.cost = 0  # what all of them ask for, in tokens

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[Claim]:
        """Go through a copy: a claim may be dismissed on the way."""
        return iter(list(self._claims))

    def __contains__(self, claim: Claim) -> bool:
        place = self._place(claim)
        return place < len(self._claims) and self._claims[place] is claim

    @property
    def first(self) -> Claim | None:
        """Who came before all others."""
        return self._claims[0] if self._claims else None

    @property
    def leader(self) -> Claim | None:
        """The first with whom somebody waits: with a debt nobody does."""
        return next((claim for claim in self._claims if claim.waker is not NOBODY), None)

    @property
    def first_cost(self) -> int:
        """What must fit before anyone can be served: the first one's cost. 0 for an empty line."""
        return self._claims[0].cost if self._claims else 0

    def join(self, claim: Claim) -> None:
        """Stand last; or where one stood before, ahead of all who came later, with the number that one had there."""
        if self._claims and claim in self:
            return
        claim.number = claim.number or self._last + 1
        self._last = max(self._last, claim.number)
        if self._claims:
            self._claims.insert(self._place(claim), claim)
        else:
            self._claims = [claim]
        self.cost += claim.cost

    def ahead_of(self, claim: Claim) -> int:
        """Return what those ask for who stand before a claim in line, in tokens."""
        if claim is self._claims[-1]:
            return self.cost - claim.cost
        return sum(each.cost for each in self._claims[: self._place(claim)])

    def resize(self, claim: Claim, cost: int) -> None:
        """Have a claim ask for more or less, in its place."""
        if claim in self:
            self.cost += cost - claim.cost
        claim.cost = cost

    def dismiss(self, claim: Claim, verdict: Verdict) -> None:
        """Tell a claim its verdict, and let it go: in this order, so that no claim is ever lost without one."""
        claim.verdict = verdict
        self.wake(claim)
        self._remove(claim)

    def dissolve(self) -> None:
        """Let all go, who know why."""
        self._claims = _NONE
        self.cost = 0

    def withdraw(self, claim: Claim) -> None:
        """Let a claim go that knows why, if it ever joined; if it was the leader, another is now."""
        if claim in self:
            self._remove(claim)
            self.wake_leader()

    def wake_leader(self) -> None:
        """Have the leader look at the clock again."""
        if (leader := self.leader) is not None:
            self.wake(leader)

    def wake(self, claim: Claim) -> None:
        """Have somebody look again, who need not be in line."""
        self._awake = self._awake or []
        self._awake.append(claim)

    def to_wake(self) -> list[Claim]:
        """Return whom to wake since the last call."""
        awake, self._awake = self._awake, _NONE
        return awake

    def _remove(self, claim: Claim) -> None:
        del self._claims[self._place(claim)]
        self.cost -= claim.cost
        self._claims = self._claims or _NONE

    def _place(self, claim: Claim) -> int:
        """Return where a claim stands, or would: a line is in the order of its numbers."""
        return bisect_left(self._claims, claim.number, key=_number)


def _number(claim: Claim) -> int:
    return claim.number

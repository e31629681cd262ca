"""Who waits for tokens, in order of arrival, and whom to wake."""

from collections.abc import Iterator

from batchlimit.core.claim import NOBODY, Admit, Claim, Fail, Refuse


class Line:
    """A queue of claims. Its leader watches the clock, and fetches, for all: so there is always one who is awake."""

    __slots__ = ("_awake", "_claims", "_last", "cost")

    def __init__(self) -> None:
        self._claims: list[Claim] = []  # an empty deque is ten times as large, and few keys have a line
        self._awake: list[Claim] = []
        self._last = 0
        self.cost = 0  # what all of them ask for, in tokens

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[Claim]:
        """Go through a copy: a claim may be dismissed on the way."""
        return iter(list(self._claims))

    def __contains__(self, claim: object) -> bool:
        return claim in self._claims

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
        """Stand last."""
        self._last += 1
        claim.number = self._last
        self._claims.append(claim)
        self.cost += claim.cost

    def rejoin(self, claim: Claim) -> None:
        """Stand where one stood before, ahead of all who came later: for who was served, and was too late."""
        if claim in self._claims:
            return
        place = sum(each.number < claim.number for each in self._claims)
        self._claims.insert(place, claim)
        self.cost += claim.cost

    def resize(self, claim: Claim, cost: int) -> None:
        """Have a claim ask for more or less, in its place."""
        if claim in self._claims:
            self.cost += cost - claim.cost
        claim.cost = cost

    def dismiss(self, claim: Claim, verdict: Admit | Refuse | Fail) -> None:
        """Tell a claim its verdict, and let it go: in this order, so that no claim is ever lost without one."""
        claim.verdict = verdict
        self._awake.append(claim)
        self._remove(claim)

    def withdraw(self, claim: Claim) -> None:
        """Let a claim go that knows why, if it ever joined; if it was the leader, another is now."""
        if claim in self._claims:
            self._remove(claim)
            self.wake_leader()

    def wake_leader(self) -> None:
        """Have the leader look at the clock again."""
        if (leader := self.leader) is not None:
            self.wake(leader)

    def wake(self, claim: Claim) -> None:
        """Have somebody look again, who need not be in line."""
        self._awake.append(claim)

    def to_wake(self) -> list[Claim]:
        """Return whom to wake since the last call."""
        awake, self._awake = self._awake, []
        return awake

    def _remove(self, claim: Claim) -> None:
        self._claims.remove(claim)
        self.cost -= claim.cost

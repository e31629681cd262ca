"""One host, as the buckets know it: its name, its numbers, and what became of the keys that it let go."""

import itertools

from batchlimit.core.decision import Statistics
from batchlimit.core.options import Options
from batchlimit.core.quota import Quota
from batchlimit.core.reservoir import Figures, Reservoir


class Host:
    """Makes the reservoirs of one limiter in one process; a forked child is another host, of another name.

    `born` is when its quotas were set, by its own clock.
    """

    __slots__ = ("_born", "_name", "_options", "_past", "_seqs")

    def __init__(self, name: str, born: float, options: Options) -> None:
        self._name, self._born, self._options = name, born, options
        self._seqs = itertools.count(1)  # one for all keys, so that a key that was dropped never repeats a number
        self._past = [0, 0, 0]  # admitted, refused and calls of the reservoirs that are gone

    def __repr__(self) -> str:
        return f"<Host {self._name}>"

    def reservoir(self, quota: Quota, now: float) -> Reservoir:
        """Return a new one, with nothing in it."""
        return Reservoir(
            quota,
            self._name,
            self._seqs,
            now,
            sizer=self._options.sizer,
            fill=self._options.fill,
            idle_after=self._options.idle_after,
            born=self._born,
            weight=self._options.weight,
        )

    def remember(self, figures: Figures) -> None:
        """Keep counting what a reservoir did that is now let go."""
        self._past = [past + figure for past, figure in zip(self._past, figures, strict=False)]

    def statistics(self, live: list[Figures]) -> Statistics:
        """Add up the reservoirs that live and those that are gone."""
        admitted, refused, calls, held, waiting, owed = (sum(column) for column in zip(*live, [0] * 6, strict=True))
        past = self._past
        return Statistics(len(live), past[0] + admitted, past[1] + refused, past[2] + calls, held, waiting, owed)

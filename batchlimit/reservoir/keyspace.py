"""One instance, as the buckets know it: its name, its numbers, and what became of the keys that it let go."""

import itertools

from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import InstanceCount
from batchlimit.reservoir.dormant import KeySnapshot
from batchlimit.reservoir.failure_policy import failure_rule
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.statistics import Health, KeyStatistics, Statistics


class Keyspace:
    """Makes the reservoirs of one limiter in one process; a forked child is another instance, of another name.

    `born` is when its quotas were set, by its own clock.
    """

    __slots__ = ("_born", "_instance_count", "_name", "_options", "_past", "_policy", "_seqs")

    def __init__(self, name: str, born: float, options: Options) -> None:
        self._name, self._born, self._options = name, born, options
        self._seqs = itertools.count(1)  # one for all keys, so that a key that was dropped never repeats a number
        self._policy = failure_rule(options.on_failure)
        self._instance_count = InstanceCount()
        self._past = [0, 0, 0, 0, 0]  # admitted, refused, calls, fallback and losses of the reservoirs that are gone

    def __repr__(self) -> str:
        return f"<Host {self._name}>"

    def reservoir(self, key: str, quota: Quota, now: float, snapshot: KeySnapshot | None) -> Reservoir:
        """Return a new one for a key, with nothing in it; `snapshot` is what there is of one before."""
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
            policy=self._policy(key),
            instance_count=self._instance_count,
            snapshot=snapshot,
        )

    def remember(self, figures: KeyStatistics) -> None:
        """Keep counting what a reservoir did that is now let go."""
        self._past = [past + figure for past, figure in zip(self._past, figures, strict=False)]

    def statistics(self, live: list[KeyStatistics], resting: int, health: Health) -> Statistics:
        """Add up the reservoirs that live and those that are gone; `resting` is how many keys are at rest."""
        now = KeyStatistics(*(sum(column) for column in zip(*live, KeyStatistics(), strict=True)))
        admitted, refused, calls, fallback, losses = (old + new for old, new in zip(self._past, now, strict=False))
        return Statistics(
            keys=len(live) + resting,
            admitted=admitted,
            refused=refused,
            calls=calls,
            held=now.held,
            waiting=now.waiting,
            owed=now.owed,
            fallback=fallback,
            losses=losses,
            failures=health.failures,
            outages=health.outages,
            available=health.available,
        )

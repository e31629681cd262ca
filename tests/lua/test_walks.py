"""The scripts and their twin along random histories that come to the instants at which something begins or ends."""

import math
import random
from typing import Any

import pytest

from batchlimit.bucket import fair_share
from batchlimit.bucket.bucket import Bucket
from batchlimit.quota.quota import Quota
from tests.depth import depth
from tests.lua.test_twin import Pair

_QUOTAS = (
    Quota(400.0, 500),
    Quota(100.0, 100),
    Quota(100.0, 40),
    Quota(100.0, 12),
    Quota(20.0, 30),
    Quota(10.0, 10),
    Quota(10.0, 1),
    Quota(1.0, 2),
    Quota(1.0, 60),
    Quota(10_000.0, 100),
    Quota(10.0, 4, (Quota(5.0, 10),)),
    Quota(100.0, 100, (Quota(10.0, 200),)),
)
_CALLS = "take", "give_back", "spend", "pause", "reset"
_PAUSES = (0, 0, 1, 300_000, 1_000_000, 5_000_000)
_RANKS = ((0, 0), (0, 0), (0, 1), (3, 0), (3, 1))
_ROUND = (0, 0, 0, 1, 1000, 10_000, 100_000, 500_000, 1_000_000)


def instants(bucket: Bucket) -> list[list[float]]:
    """When something begins, ends or is full, if nobody calls (us since the bucket's birth); together what is alike."""
    table, now, bands = bucket._table, bucket._time, bucket._bands
    found: list[list[float]] = [
        [each for entry in table.instances.values() for each in (entry.expires, entry.starts, entry.known)],
        [entry.seen + fair_share.ACTIVE for entry in table.instances.values()],
        [now + (tokens - level) / band.rate for band, level in bucket._each() for tokens in (1, 2, 3)],
        [
            now + (band.burst - leased - level) / band.rate
            for band, level in bucket._each()
            for leased in (0, table.outstanding)
        ],
        [table.swept + fair_share.lease_of(bands), table.swept + fair_share.SWEEP * table.active],
        [now + fair_share.OVER, now + fair_share.QUIET, bucket._known],
    ]
    found += [[bucket._reserved.ends]] if bucket._reserved else []
    found += [[bucket._paused, bucket._paused + fair_share.SETTLES]] if bucket._paused is not None else []
    found += (
        [[bucket._heard + fair_share.HEARD, bucket._heard + fair_share.SILENT]] if bucket._heard is not None else []
    )
    return found


class Walk:
    """One history: mostly of leases, or of spends; where quotas are equal nobody has a rank."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._quotas = self._random.choices(_QUOTAS, k=self._random.choice((1, 2)))
        self._often = self._one((65, 12, 12, 8, 3), (65, 12, 12, 8, 3), (3, 0, 80, 15, 2))
        self.pair = Pair(self._quotas)

    def step(self) -> None:
        """Let some time pass, and make a call."""
        self.pair.lua.now += self._elapsed()
        quota = self._one(*self._quotas)
        call, *arguments = self._call()
        getattr(self.pair, call)(*arguments, quota)
        self.pair.check(quota)

    def _one(self, *these: Any) -> Any:
        return self._random.choice(these)

    def _elapsed(self) -> int:
        bucket = self.pair.twin
        kind = self._one("round", "round", "round", "instant", "instant", "any")
        if kind == "any":
            return self._random.randrange(-200_000, 300_000)
        if kind == "round" or bucket is None:
            return int(self._one(*_ROUND))
        now = self.pair.lua.now - bucket._epoch
        soon = [[math.ceil(each) - now for each in alike if now < each < now + 10**8] for alike in instants(bucket)]
        return int(self._one(*self._one(*filter(None, soon)))) + int(self._one(0, 0, 0, 1, -1)) if any(soon) else 0

    def _call(self) -> tuple[Any, ...]:
        kind = self._random.choices(_CALLS, self._often)[0]
        host, is_ranked = self._one("a", "a", "b", "b", "c"), len(self._quotas) > 1
        age, rank = (self._one(0.0, 0.0, 0.5, 3600.0), self._one(*_RANKS)) if is_ranked else (0.0, (0, 0))
        match kind:
            case "take":
                need, more, most = (self._one(0, self._count(), self._count()) for _ in range(3))
                seq, waits = self._one(*("next",) * 6, "same", "older"), self._one(0.0, 0.0, 0.0, 0.1, 0.3, 1.0)
                return kind, host, seq, (need, more, most, self._held(host), self._one(0, 0, 1, 9)), waits, age, rank
            case "give_back":
                seq = self._one("next", "next", "same")
                return kind, host, seq, (self._count(), self._held(host), self._one(0, 0, 1, 2))
            case "spend":
                return kind, self._one(1, 1, 2, 3), age, rank
            case "pause":
                return kind, self._one(*_PAUSES)
            case _:
                return kind, self._one(False, True)

    def _held(self, host: str) -> int:
        entry = self.pair.twin and self.pair.twin._table.instances.get(host)
        return int(self._one(0, 0, 1, entry.held if entry else 2))

    def _count(self) -> int:
        """Few tokens, or as many as there are, or all."""
        bucket = self.pair.twin
        burst, level = self._quotas[0].largest_cost, math.floor(min(bucket._levels)) if bucket else 0
        return min(burst, max(0, int(self._one(1, 1, 2, 3, level, level + 1, burst // 4, burst // 2, burst))))


@pytest.mark.parametrize("seed", range(depth(160, 2000)))
def test_the_scripts_and_their_twin_answer_alike_when_something_begins_or_ends(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(40):
        walk.step()

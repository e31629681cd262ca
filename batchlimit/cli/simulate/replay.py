"""Sends each line of a log to one of the instances, by the rules, and counts what became of it."""

import random
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from types import SimpleNamespace
from typing import NamedTuple
from urllib.parse import unquote
from zlib import crc32

from batchlimit.cli.simulate.fleet import Fleet
from batchlimit.cli.simulate.log import Line
from batchlimit.cli.simulate.result import ReplayTally, Result
from batchlimit.quota.quota import Quota
from batchlimit.rules import Rule, Rules, Statuses
from batchlimit.rules.key import NoKey
from batchlimit.rules.request import Template
from batchlimit.sync.limiter import RateLimiter

_FIRST = 20_000
"""Charges that the instances decide in any case: they take 100 us for each, and a bucket takes 1."""
_STRETCH, _OF = 10.0, 400.0
"""Seconds of the log that they decide later too, of so many each."""
_ROUNDING = 1e-3
"""Tokens that a request may be short of. Instants are doubles: half of a log at the pace of its quota was refused."""
_MOST_ROUTES = 100_000
"""Targets whose rules are remembered."""


class Spread(StrEnum):
    """Which instance gets a request."""

    RANDOM = "random"
    CLIENT = "client"


class ReplayBucket:
    """A key's bucket as arithmetic has it; it begins full. `stretch` is the last that instances used it in."""

    __slots__ = ("_bands", "_last", "key", "levels", "quota", "stretch")

    def __init__(self, key: str, quota: Quota, now: float) -> None:
        self.key, self.quota, self._last, self.stretch = key, quota, now, 0
        self._bands = [(number, (band.rate, float(band.burst))) for number, band in enumerate(quota.bandwidths)]
        self.levels = [burst for _, (_, burst) in self._bands]

    def has(self, now: float, cost: int) -> bool:
        """Refill it, and return whether there are so many tokens."""
        passed, self._last = now - self._last, now
        for number, (rate, burst) in self._bands:
            level = self.levels[number] + passed * rate
            self.levels[number] = level if level < burst else burst
        return min(self.levels) >= cost - _ROUNDING

    def spend(self, cost: int) -> None:
        self.levels = [level - cost for level in self.levels]


class Charge(NamedTuple):
    """What a rule charges a key for a request."""

    rule: Rule
    tally: ReplayTally
    bucket: ReplayBucket


class Replay:
    """Rules, instances of which one gets each request, and a log.

    The instances decide the first requests and those of some stretches later, or all if it `is_exact`. One bucket for
    each key decides the others: it admits what a fleet does, but for tokens that expire unspent at an instance. That
    is a percent or two where keys are busy. The store's calls are estimated by those of the instances.
    """

    def __init__(
        self,
        rules: Rules,
        instances: int = 4,
        by: Spread = Spread.RANDOM,
        *,
        round_trip: float = 0.001,
        seed: int = 1,
        is_exact: bool = False,
    ) -> None:
        for rule in rules:
            if not isinstance(rule.cost, int):
                raise ValueError(
                    f"rule {rule.name!r}: its cost is a function of the request, which no log can be asked"
                )
            if not isinstance(rule.charge, Statuses | None):
                raise ValueError(
                    f"rule {rule.name!r}: its charge is a function of the response; a log has its status only"
                )
        self._rules, self._by, self._is_exact = rules, by, is_exact
        self._fleet, self._random = Fleet(rules.quotas, instances, round_trip, seed), random.Random(seed)
        self._routes = dict[tuple[str, str], tuple[Template, ...]]()
        self._charges = dict[tuple[str, str], Charge]()
        self._buckets = dict[str, ReplayBucket]()
        self._stretch = self._charged = 0  # of instances, the last; charges
        self.result = Result()

    def run(self, lines: Iterable[Line]) -> Result:
        """Replay lines in order of time. Those of one whole second are spread over it."""
        result, is_asked = self.result, False
        for at, group in groupby(lines, itemgetter(0)):
            together, before = list(group), result.admitted
            was_asked, is_asked = is_asked, self._is_exact or result.asked < _FIRST or at % _OF < _STRETCH
            if is_asked and not was_asked:
                self._stretch += 1
            result.begun, result.ended = result.begun or at, at
            apart = 1 / len(together) if at.is_integer() else 0.0
            for number, line in enumerate(together):
                result.admitted += self._request(line, at + number * apart, is_asked)
            passed, (admitted, refused) = result.admitted - before, result.seconds.get(int(at), (0, 0))
            result.seconds[int(at)] = admitted + passed, refused + len(together) - passed
            result.requests += len(together)
        result.calls = round(self._fleet.store.calls * self._charged / result.asked) if result.asked else 0
        return result

    def _request(self, line: Line, at: float, is_asked: bool) -> bool:
        """Charge a request, by an instance or by buckets alone; return whether it was admitted."""
        if (ways := self._routes.get(line[1:3])) is None:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            ways = self._rules.templates(line[1], unquote(line[2].partition("?")[0]))
            self._routes[line[1:3]] = ways
        limiter, enforced, shadows = None, list[Charge](), list[Charge]()
        if is_asked:
            self._fleet.move(at)
            limiters = self._fleet.limiters
            own = crc32(line[3].encode()) % len(limiters)
            limiter = limiters[own] if self._by is Spread.CLIENT else self._random.choice(limiters)
        for rule, template, parameters in ways:
            try:
                key = template.fill({"ip": line[3], "user": line[4]}, parameters)
            except NoKey:
                self.result.without_key[rule.name] += 1
                continue
            charge = self._charges.get((rule.name, key)) or self._charge(rule, key, at)
            (enforced if rule.mode == "enforce" else shadows).append(charge)
        short = self._short(enforced, limiter, at)
        for each in enforced:
            each.tally.admitted += short is None
            each.tally.refused += each.bucket is short
        if short is not None:
            return False
        for each in shadows:
            is_short = self._short([each], limiter, at) is not None
            each.tally.admitted += not is_short
            each.tally.refused += is_short
        for rule, _, bucket in enforced:
            if rule.charge is not None and rule.cost and not rule.charge(SimpleNamespace(status=line[5])):
                bucket.spend(-rule.cost)  # type: ignore[operator]  # see __init__
                if limiter is not None:
                    limiter.refund(bucket.key, rule.cost)  # type: ignore[arg-type]
        return True

    def _short(self, charges: Sequence[Charge], limiter: RateLimiter | None, at: float) -> ReplayBucket | None:
        """Charge all buckets or none; return the one that is short."""
        costs = dict[ReplayBucket, int]()
        for rule, _, bucket in charges:
            costs[bucket] = costs.get(bucket, 0) + rule.cost  # type: ignore[operator]
        self._charged += len(charges)
        lacking = [bucket for bucket, cost in costs.items() if not bucket.has(at, cost)]
        if limiter is not None:
            self.result.asked += len(charges)
            lacking = self._asked(limiter, costs)
        if lacking:
            return lacking[0]
        for bucket, cost in costs.items():
            bucket.spend(cost)
        return None

    def _asked(self, limiter: RateLimiter, costs: Mapping[ReplayBucket, int]) -> list[ReplayBucket]:
        for bucket in costs:
            if bucket.stretch != self._stretch and not bucket.quota.denies_all:
                bucket.stretch = self._stretch
                self._fleet.store.begin(bucket.key, bucket.quota, bucket.levels)
        if len(costs) == 1:
            return [bucket for bucket, cost in costs.items() if not limiter.try_acquire(bucket.key, cost)]
        told = limiter.decide_all({bucket.key: cost for bucket, cost in costs.items()}) if costs else {}
        return [bucket for bucket in costs if bucket.key in told and not told[bucket.key].allowed]

    def _charge(self, rule: Rule, key: str, at: float) -> Charge:
        if (bucket := self._buckets.get(key)) is None:
            bucket = self._buckets[key] = ReplayBucket(key, rule.quota, at)
        tally = self.result.keys[rule.name, key] = ReplayTally()
        charge = self._charges[rule.name, key] = Charge(rule, tally, bucket)
        return charge

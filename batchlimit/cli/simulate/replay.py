"""Sends each line of a log to one of the instances, by the rules, and counts what became of it."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from types import SimpleNamespace
from urllib.parse import unquote
from zlib import crc32

from batchlimit.base.key import stored
from batchlimit.cli.simulate.fleet import Fleet
from batchlimit.cli.simulate.log import Line, instants, pause
from batchlimit.cli.simulate.plain_bucket import CallSample, ReplayBucket
from batchlimit.cli.simulate.result import ReplayTally, Result
from batchlimit.rules import Rule, Rules, Statuses
from batchlimit.rules.key import KeyTemplate, NoKey
from batchlimit.sync.limiter import RateLimiter

_MOST_ROUTES = 100_000
"""Targets whose rules are remembered."""


@dataclass(slots=True)
class Charge:
    """One rule that a request is charged to."""

    cost: int
    statuses: Statuses | None
    tally: ReplayTally
    bucket: ReplayBucket


FindCharge = Callable[[Line], Charge | None]
"""Returns what a rule charges a line; None where no key can be made."""
Route = tuple[list[tuple[Rule, FindCharge]], FindCharge | None]
"""The rules that match a target; and the one, where it is the only one, refuses, and charges whatever the status is."""


class Spread(StrEnum):
    """Which instance gets a request."""

    RANDOM = "random"
    CLIENT = "client"


class Replay:
    """Rules, instances of which one gets each request, and a log; `is_exact`: reservoirs decide all."""

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
        self._rules, self._instances, self._by, self._is_exact = rules, instances, by, is_exact
        self._sample = CallSample()
        self._fleet = Fleet(
            rules.quotas, instances, round_trip, seed, lambda name: self._sample.call(self._buckets[name].sampled_as)
        )
        self._random = random.Random(seed)
        self._routes: dict[tuple[str, str], Route] = {}
        self._known: dict[str, dict[object, Charge | None]] = {rule.name: {} for rule in rules}
        self._buckets: dict[str, ReplayBucket] = {}  # by what the store has their keys under
        self._now = 0.0
        self.result = Result()

    def run(self, lines: Iterable[Line]) -> Result:
        result = self.result
        for at, together in instants(lines):
            result.begun, self._now = result.begun or at, at
            admitted = self._instant(at, together)
            second = int(at)
            before = result.seconds.get(second, (0, 0))
            result.seconds[second] = before[0] + admitted, before[1] + len(together) - admitted
            result.requests, result.admitted = result.requests + len(together), result.admitted + admitted
            result.ended = at
        for bucket in self._buckets.values():
            self._sample.settle(bucket)
        result.calls = self._fleet.store.calls + self._sample.calls
        return result

    def _instant(self, at: float, together: list[Line]) -> int:
        """Replay the lines of one instant; return how many were admitted."""
        step, admitted = pause(at, len(together)), 0
        for line in together:
            ways, find = self._routes.get(line[1:3]) or self._route(*line[1:3])
            charge = find(line) if find is not None else None
            if charge is None or charge.bucket.is_sampled or self._is_exact:
                passed = self._decided(ways, line, at)
            else:
                passed = charge.bucket.spends(at, charge.cost)
                charge.tally.admitted += passed
                charge.tally.refused += not passed
                if charge.bucket.is_sampled:  # from this request on
                    self._fleet.move(at)
                    self._ask(self._home(line), [charge])
            admitted += passed
            at += step
        return admitted

    def _decided(self, ways: list[tuple[Rule, FindCharge]], line: Line, at: float) -> bool:
        """Decide a request of several rules, or of one that an instance has to be chosen for."""
        self._fleet.move(at)
        limiter, enforced, shadows = self._home(line), list[Charge](), list[Charge]()
        for rule, find in ways:
            if (charge := find(line)) is None:
                self.result.without_key[rule.name] += 1
            else:
                (enforced if rule.mode == "enforce" else shadows).append(charge)
        short = self._refused(limiter, enforced, at)
        for charge in enforced:
            charge.tally.admitted += short is None
            charge.tally.refused += charge.bucket.key == short
        if short is None:
            for charge in shadows:
                is_short = self._refused(limiter, [charge], at) is not None
                charge.tally.admitted += not is_short
                charge.tally.refused += is_short
            for charge in enforced:
                if charge.statuses is not None and charge.cost and not charge.statuses(SimpleNamespace(status=line[5])):
                    if self._is_exact or charge.bucket.is_sampled:
                        limiter.refund(charge.bucket.key, charge.cost)
                    charge.bucket.take_back(charge.cost)
        return short is None

    def _home(self, line: Line) -> RateLimiter:
        is_near = self._by is Spread.CLIENT
        home = crc32(line[3].encode()) % self._instances if is_near else int(self._random.random() * self._instances)
        return self._fleet.limiters[home]

    def _refused(self, limiter: RateLimiter, charges: Sequence[Charge], at: float) -> str | None:
        """Charge all of them or none; return the key that is short."""
        if self._is_exact:
            return self._ask(limiter, charges)
        short, spent = None, list[Charge]()
        for charge in charges:
            if not charge.bucket.spends(at, charge.cost):
                short = charge.bucket.key
                break
            spent.append(charge)
        for each in spent if short is not None else ():
            each.bucket.take_back(each.cost)
        # The others of a request that one key refuses are looked at as well, and mostly from memory.
        self._ask(limiter, [each for each in (spent if short is None else [charge]) if each.bucket.is_sampled])
        return short

    def _ask(self, limiter: RateLimiter, charges: Sequence[Charge]) -> str | None:
        """Charge all keys or none, by reservoirs; return the one that is short."""
        self.result.asked += len(charges)
        if len(charges) == 1:
            key = charges[0].bucket.key
            return None if limiter.try_acquire(key, charges[0].cost) else key
        costs = Counter[str]()
        for charge in charges:
            costs[charge.bucket.key] += charge.cost
        decisions = limiter.decide_all(costs) if costs else {}
        return next((key for key, decision in decisions.items() if not decision.allowed), None)

    def _begin(self, bucket: ReplayBucket) -> None:
        """Begin a stretch: with reservoirs if there are too few samples of its kind."""
        was_sampled = bucket.is_sampled  # then reservoirs go on with what they have
        self._sample.begin(bucket)
        if bucket.is_sampled and not was_sampled and not self._is_exact and not bucket.quota.denies_all:
            self._fleet.move(self._now)
            self._fleet.store.begin(stored(bucket.key), bucket.quota, bucket.levels)

    def _route(self, method: str, target: str) -> Route:
        if len(self._routes) >= _MOST_ROUTES:
            self._routes.clear()
        matching = self._rules.templates(method, unquote(target.partition("?")[0]))
        ways = [(rule, self._finding(rule, template, parameters)) for rule, template, parameters in matching]
        is_one = len(ways) == 1 and ways[0][0].mode == "enforce" and ways[0][0].charge is None
        route = self._routes[method, target] = ways, ways[0][1] if is_one else None
        return route

    def _finding(self, rule: Rule, template: KeyTemplate, parameters: Mapping[str, str]) -> FindCharge:
        """Return what finds the charges of a rule for one target."""
        is_shared = set(template.fields) <= {"ip", "user"}  # else the path has a part in the key
        known: dict[object, Charge | None] = self._known[rule.name] if is_shared else {}
        places = [place for place, field in ((3, "ip"), (4, "user")) if field in template.fields]
        client: Callable[[Line], object] = itemgetter(*places) if places else lambda _line: ""

        def find(line: Line) -> Charge | None:
            if (who := client(line)) not in known:
                try:
                    key = template.fill({"ip": line[3], "user": line[4]}, parameters)
                except NoKey:
                    known[who] = None
                else:
                    known[who] = self._charge(rule, key)
            return known[who]

        return find

    def _charge(self, rule: Rule, key: str) -> Charge:
        if not isinstance(rule.cost, int):
            raise ValueError(f"rule {rule.name!r}: its cost is a function of the request, which no log can be asked")
        if rule.charge is not None and not isinstance(rule.charge, Statuses):
            raise ValueError(f"rule {rule.name!r}: its charge is a function of the response; a log has its status only")
        tally, name = self.result.keys.setdefault((rule.name, key), ReplayTally()), stored(key)
        if (bucket := self._buckets.get(name)) is None:
            bucket = self._buckets[name] = ReplayBucket(rule.quota, self._now, self._begin, key)
        return Charge(rule.cost, rule.charge, tally, bucket)

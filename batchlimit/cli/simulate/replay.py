"""Sends each line of a log to one of the instances, by the rules, and counts what became of it."""

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import partial
from types import SimpleNamespace
from urllib.parse import unquote
from zlib import crc32

from batchlimit.cli.simulate.fleet import Fleet
from batchlimit.cli.simulate.log import Charge, Line, ReplayedBucket, Route, Way, client_of, instants, pause
from batchlimit.cli.simulate.result import ReplayTally, Result
from batchlimit.cli.simulate.screen import BucketTrust, CallSample, Screen
from batchlimit.quota.key import stored
from batchlimit.rules import Rule, Rules, Statuses
from batchlimit.rules.key import NoKey
from batchlimit.sync.limiter import RateLimiter

_MOST_ROUTES = 100_000
"""Targets whose rules are remembered."""


class Spread(StrEnum):
    """Which instance gets a request."""

    RANDOM = "random"
    CLIENT = "client"


class Replay:
    """Rules, instances of which one gets each request, and a log. `is_exact`: reservoirs decide all (see `screen`)."""

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
        self._fleet = Fleet(rules.quotas, instances, round_trip, seed, self._call)
        self._random = random.Random(seed)
        self._routes: dict[tuple[str, str], Route] = {}
        self._known: dict[str, dict[str | tuple[str, str], Charge | ReplayTally]] = {rule.name: {} for rule in rules}
        self._buckets: dict[str, ReplayedBucket] = {}
        self._now = 0.0
        self.result = Result(without_key={rule.name: ReplayTally() for rule in rules})

    def run(self, lines: Iterable[Line]) -> Result:
        """Replay a log, and return what happened."""
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
            self._settle(bucket)
            bucket.trust.settle()
        trusted = sum(bucket.trust.calls for bucket in self._buckets.values())
        result.calls = self._fleet.store.calls + self._sample.calls + round(trusted)
        return result

    def _instant(self, at: float, together: list[Line]) -> int:
        """Replay the lines of one instant; return how many were admitted."""
        routes, step, admitted = self._routes, pause(at, len(together)), 0
        for _, method, target, ip, user, status in together:
            ways, way = routes.get((method, target)) or self._route(method, target)
            if way is not None:
                charge = way.known.get(user if way.by == "user" else ip if way.by == "ip" else client_of(way, ip, user))
                if charge.__class__ is Charge:
                    bucket = charge.bucket
                    if (screen := bucket.screen).is_open:
                        if not screen.is_sampled:
                            if screen.passes(at, charge.cost):
                                charge.tally.admitted += 1
                                admitted += 1
                                at += step
                                continue
                            self._open(bucket, at)
                    elif (trust := bucket.trust).until > at:
                        if screen.spends(at, charge.cost, trust.pace):
                            charge.tally.admitted += 1
                            admitted += 1
                        else:
                            charge.tally.refused += 1
                        trust.count += 1
                        at += step
                        continue
            admitted += self._decided(ways, ip, user, status, at)
            at += step
        return admitted

    def _decided(self, ways: list[Way], ip: str, user: str, status: int, at: float) -> bool:
        """Decide a request of several rules, or of one that arithmetic does not decide."""
        self._fleet.move(at)
        is_near = self._by is Spread.CLIENT
        home = crc32(ip.encode()) % self._instances if is_near else int(self._random.random() * self._instances)
        limiter, enforced, shadows = self._fleet.limiters[home], list[Charge](), list[Charge]()
        for way in ways:
            match self._found(way, ip, user):
                case Charge() as charge:
                    (enforced if way.rule.mode == "enforce" else shadows).append(charge)
                case ReplayTally() as tally:
                    tally.without_key += 1
        short = self._refused(limiter, enforced, at)
        for charge in enforced:
            if short is None:
                charge.tally.admitted += 1
            elif charge.bucket.key == short:
                charge.tally.refused += 1
        if short is None:
            for charge in shadows:
                if self._refused(limiter, [charge], at) is None:
                    charge.tally.admitted += 1
                else:
                    charge.tally.refused += 1
            _take_back(limiter, enforced, status, at)
        return short is None

    def _refused(self, limiter: RateLimiter, charges: Sequence[Charge], at: float) -> str | None:
        """Charge all of them or none; return the key that is short."""
        passed, asked, short = list[Charge](), list[Charge](), None
        for charge in charges:
            match self._passes(charge, at):
                case None:
                    asked.append(charge)
                case True:
                    passed.append(charge)
                case False:
                    short = short or charge.bucket.key
        if short is None:
            short = _asked(limiter, asked)
            self.result.asked += len(asked)
            for charge in asked:
                self._compare(charge, at, is_admitted=short is None, is_alone=len(charges) == 1)
        if short is not None:
            for charge in passed:
                charge.bucket.screen.take_back(charge.cost)
        return short

    def _passes(self, charge: Charge, at: float) -> bool | None:
        """Whether arithmetic admits this charge: then it is charged. None: reservoirs decide."""
        bucket, screen = charge.bucket, charge.bucket.screen
        if not (screen.is_open or (bucket.trust.until <= at and screen.reopens(at))):
            trust = bucket.trust
            if trust.until == -math.inf:
                return None
            if trust.until <= at and not trust.lasts(at):
                self._open(bucket, at)
                return None
            trust.count += 1  # the plain bucket decides
            return screen.spends(at, charge.cost, trust.pace)
        is_sampled = screen.is_sampled
        if not screen.passes(at, charge.cost):
            self._open(bucket, at)
            return None
        return None if is_sampled else True

    def _compare(self, charge: Charge, at: float, *, is_admitted: bool, is_alone: bool) -> None:
        """Charge the plain bucket too, and compare; what another key may have refused is not charged."""
        bucket, screen = charge.bucket, charge.bucket.screen
        if screen.is_open or self._is_exact:
            return
        cost = charge.cost if is_alone or is_admitted else 0
        bucket.trust.add(is_admitted * cost, screen.spends(at, cost) * cost)
        if bucket.trust.is_due(at):
            plain, screen.levels = screen.levels, self._fleet.levels(bucket.name)
            bucket.trust.judge(at, screen.levels[0] - plain[0])

    def _call(self, name: str) -> None:
        """Take note of a call of the store."""
        self._sample.call(name)
        self._buckets[name].trust.call()

    def _end(self, name: str, screen: Screen) -> None:
        """End a stretch, and begin the next one: with reservoirs if there are too few samples of its kind."""
        bucket = self._buckets[name]
        self._settle(bucket)
        screen.is_sampled = self._sample.begins(name, screen.count)
        if screen.is_sampled:
            self._fleet.move(screen.last)
            self._fleet.store.begin(name, bucket.quota, screen.levels)

    def _settle(self, bucket: ReplayedBucket) -> None:
        """Count the requests of a stretch that has ended."""
        screen = bucket.screen
        if screen.is_sampled:
            self._sample.add(bucket.name, screen.count)
        else:
            self._sample.screen(screen.count)

    def _open(self, bucket: ReplayedBucket, at: float) -> None:
        """Have reservoirs decide from now on, with what is left; in a sampled stretch they have decided as well."""
        screen = bucket.screen
        if screen.is_sampled:
            self._settle(bucket)
        else:
            self._fleet.move(at)
            self._fleet.store.begin(bucket.name, bucket.quota, screen.levels)
        self._sample.leave(bucket.name)
        screen.count, screen.is_sampled = 0, False
        bucket.trust.begin(at)

    def _route(self, method: str, target: str) -> Route:
        if len(self._routes) >= _MOST_ROUTES:
            self._routes.clear()
        ways = list[Way]()
        for rule, template, parameters in self._rules.templates(method, unquote(target.partition("?")[0])):
            fields = set(template.fields)
            is_shared = fields <= {"ip", "user"}  # else the path has a part in the key
            of_client = fields & {"ip", "user"}
            by = "both" if len(of_client) == 2 else of_client.pop() if of_client else "none"
            ways.append(Way(rule, template, parameters, by, self._known[rule.name] if is_shared else {}))
        is_one = len(ways) == 1 and ways[0].rule.mode == "enforce" and ways[0].rule.charge is None
        route = self._routes[method, target] = ways, ways[0] if is_one else None
        return route

    def _found(self, way: Way, ip: str, user: str) -> Charge | ReplayTally:
        """Return what a rule charges, or where to count that it has no key."""
        value = client_of(way, ip, user)
        if (found := way.known.get(value)) is None:
            try:
                found = self._charge(way.rule, way.template.fill({"ip": ip, "user": user}, way.parameters))
            except NoKey:
                found = self.result.without_key[way.rule.name]
            way.known[value] = found
        return found

    def _charge(self, rule: Rule, key: str) -> Charge:
        if not isinstance(rule.cost, int):
            raise ValueError(f"rule {rule.name!r}: its cost is a function of the request, which no log can be asked")
        if rule.charge is not None and not isinstance(rule.charge, Statuses):
            raise ValueError(f"rule {rule.name!r}: its charge is a function of the response; a log has its status only")
        tally, name = self.result.keys.setdefault((rule.name, key), ReplayTally()), stored(key)
        if (bucket := self._buckets.get(name)) is None:
            screen = Screen(rule.quota, self._now, partial(self._end, name), is_exact=self._is_exact)
            bucket = self._buckets[name] = ReplayedBucket(key, name, rule.quota, screen, BucketTrust())
        return Charge(rule.cost, rule.charge, tally, bucket)


def _asked(limiter: RateLimiter, charges: Sequence[Charge]) -> str | None:
    """Charge all keys or none; return the one that is short."""
    if len(charges) == 1:
        key = charges[0].bucket.key
        return None if limiter.try_acquire(key, charges[0].cost) else key
    costs = Counter[str]()
    for charge in charges:
        costs[charge.bucket.key] += charge.cost
    for key, decision in limiter.decide_all(costs).items() if costs else ():
        if not decision.allowed:
            return key
    return None


def _take_back(limiter: RateLimiter, charges: Sequence[Charge], status: int, at: float) -> None:
    """Return what this status does not charge; to reservoirs too, if they were charged."""
    for charge in charges:
        if charge.statuses is not None and charge.cost and not charge.statuses(SimpleNamespace(status=status)):
            bucket = charge.bucket
            if bucket.screen.is_sampled if bucket.screen.is_open else bucket.trust.until <= at:
                limiter.refund(bucket.key, charge.cost)
            bucket.screen.take_back(charge.cost)

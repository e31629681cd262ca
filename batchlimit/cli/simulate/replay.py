"""Sends each line of a log to one of the instances, by the rules, and counts what became of it."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote
from zlib import crc32

from batchlimit.cli.simulate.fleet import Fleet, SimulatedLimiter
from batchlimit.cli.simulate.lines import instants, pause
from batchlimit.cli.simulate.log import Line
from batchlimit.cli.simulate.sample import Sample
from batchlimit.cli.simulate.screen import Screen
from batchlimit.quota.quota import Quota
from batchlimit.rules import Rule, Rules, Statuses
from batchlimit.rules.key import NoKey

_MOST_PLANS = 200_000
"""Requests whose rules and keys are remembered."""


class Spread(StrEnum):
    """Which instance gets a request."""

    RANDOM = "random"
    CLIENT = "client"


@dataclass(slots=True)
class Tally:
    """Requests that a rule was asked for, or one key of it.

    Attributes:
        admitted: admitted.
        refused: refused; by a shadow rule, those that it would have refused.
        without_key: of a rule: requests of which its key could not be made. It let them pass.
    """

    admitted: int = 0
    refused: int = 0
    without_key: int = 0


@dataclass(slots=True)
class Bucket:
    """One key."""

    key: str
    quota: Quota
    screen: Screen


@dataclass(slots=True)
class Charge:
    """One rule that a request is charged to."""

    cost: int
    statuses: Statuses | None
    tally: Tally
    bucket: Bucket


@dataclass(slots=True)
class Plan:
    """What becomes of one kind of request.

    Attributes:
        only: what it is charged to, if that is all there is to do.
        enforced: what it is charged to.
        shadows: what only looks on.
        without_key: rules whose key could not be made.
        home: the instance of its client.
    """

    only: Charge | None
    enforced: tuple[Charge, ...]
    shadows: tuple[Charge, ...]
    without_key: tuple[Tally, ...]
    home: int


class _Response(NamedTuple):
    status: int


@dataclass(slots=True)
class Result:
    """What a replay found.

    Attributes:
        requests: lines that were replayed.
        admitted: requests that passed all rules.
        begun, ended: the instants of the first and the last one (seconds since 1970).
        without_key: requests of which a rule's key could not be made, by name of the rule.
        keys: by name of the rule and key.
        seconds: admitted and refused requests of each second.
        calls: of the store; those of screened charges as far as a sample tells.
        screened: charges that arithmetic decided, without a reservoir.
    """

    requests: int = 0
    admitted: int = 0
    begun: float = 0.0
    ended: float = 0.0
    without_key: dict[str, Tally] = field(default_factory=dict)
    keys: dict[tuple[str, str], Tally] = field(default_factory=dict)
    seconds: dict[int, tuple[int, int]] = field(default_factory=dict)
    calls: int = 0
    screened: int = 0

    def of_rule(self, name: str) -> Tally:
        """Return the sum of a rule's keys."""
        found = [tally for (rule, _), tally in self.keys.items() if rule == name]
        sums = sum(each.admitted for each in found), sum(each.refused for each in found)
        return Tally(*sums, self.without_key[name].without_key)


class Replay:
    """Rules, instances and a log.

    Args:
        rules: the proposed rules.
        instances: how many limiter instances (default 4).
        by: which of them gets a request (default: any, at random).
        round_trip: of the store (seconds, default 0.001).
        seed: of the choice of instances, and of the jitter (default 1).
        is_exact: whether reservoirs decide all requests (default False: see `screen`).
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
        self._rules, self._instances, self._by, self._is_exact = rules, instances, by, is_exact
        self._sample = Sample()
        self._fleet = Fleet(rules.quotas, instances, round_trip, seed, self._sample.call)
        self._random = random.Random(seed)
        self._plans: dict[tuple[str, str, str, str], Plan] = {}
        self._buckets: dict[str, Bucket] = {}
        self._now = 0.0
        self.result = Result(without_key={rule.name: Tally() for rule in rules})

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
            self._settle(bucket.key, bucket.screen)
        result.calls = self._fleet.store.calls + self._sample.calls
        return result

    def _instant(self, at: float, together: list[Line]) -> int:
        """Replay the lines of one instant; return how many were admitted."""
        plans, step, admitted, screened = self._plans, pause(at, len(together)), 0, 0
        for _, method, target, ip, user, status in together:
            plan = plans.get((method, target, ip, user)) or self._planned(method, target, ip, user)
            charge = plan.only
            if charge is not None and (screen := charge.bucket.screen).is_open and not screen.is_sampled:
                if screen.passes(at, charge.cost):
                    charge.tally.admitted += 1
                    screened += 1
                    at += step
                    continue
                self._open(charge.bucket, at)
            admitted += self._decided(plan, status, at)
            at += step
        self.result.screened += screened
        return admitted + screened

    def _decided(self, plan: Plan, status: int, at: float) -> bool:
        """Decide a request that has more than one rule, or a rule that reservoirs decide."""
        self._fleet.move(at)
        home = plan.home if self._by is Spread.CLIENT else int(self._random.random() * self._instances)
        limiter = self._fleet.limiters[home]
        for tally in plan.without_key:
            tally.without_key += 1
        short = self._refused(limiter, plan.enforced, at)
        for charge in plan.enforced:
            if short is None:
                charge.tally.admitted += 1
            elif charge.bucket.key == short:
                charge.tally.refused += 1
        if short is None:
            for charge in plan.shadows:
                if self._refused(limiter, (charge,), at) is None:
                    charge.tally.admitted += 1
                else:
                    charge.tally.refused += 1
            _take_back(limiter, plan.enforced, status)
        return short is None

    def _refused(self, limiter: SimulatedLimiter, charges: tuple[Charge, ...], at: float) -> str | None:
        """Charge all of them or none; return the key that is short."""
        passed, costs = [], dict[str, int]()
        for charge in charges:
            if self._passes(charge, at):
                passed.append(charge)
            else:
                costs[charge.bucket.key] = costs.get(charge.bucket.key, 0) + charge.cost
        short = _asked(limiter, costs)
        if short is not None:
            for charge in passed:
                charge.bucket.screen.take_back(charge.cost)
        self.result.screened += len(passed) if short is None else 0
        return short

    def _passes(self, charge: Charge, at: float) -> bool:
        """Whether arithmetic decides this charge: then it is charged."""
        bucket, screen = charge.bucket, charge.bucket.screen
        if not (screen.is_open or screen.reopens(at)):
            return False
        is_sampled, is_certain = screen.is_sampled, screen.passes(at, charge.cost)
        if not is_certain:
            self._sample.leave(bucket.key)
            if not is_sampled:
                self._open(bucket, at)
        return is_certain and not is_sampled

    def _end(self, key: str, screen: Screen) -> None:
        """End a stretch, and begin the next one: with reservoirs if there are too few samples of its kind."""
        self._settle(key, screen)
        screen.is_sampled = self._sample.begins(key, screen.count)
        if screen.is_sampled:
            self._fleet.move(screen.last)
            self._fleet.store.begin(key, self._buckets[key].quota, screen.levels)

    def _settle(self, key: str, screen: Screen) -> None:
        """Count a stretch that has ended."""
        if screen.is_open and screen.is_sampled:
            self._sample.add(key, screen.count)
        elif screen.is_open:
            self._sample.screen(screen.count)

    def _open(self, bucket: Bucket, at: float) -> None:
        """Have reservoirs decide from now on, with what is left."""
        self._fleet.move(at)
        self._sample.leave(bucket.key)
        self._fleet.store.begin(bucket.key, bucket.quota, bucket.screen.levels)

    def _planned(self, method: str, target: str, ip: str, user: str) -> Plan:
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        path = unquote(target.partition("?")[0])
        identity = {"ip": ip, "user": user}
        enforced, shadows, without = list[Charge](), list[Charge](), list[Tally]()
        for rule, template, parameters in self._rules.templates(method, path):
            try:
                charge = self._charge(rule, template.fill(identity, parameters))
            except NoKey:
                without.append(self.result.without_key[rule.name])
            else:
                (enforced if rule.mode == "enforce" else shadows).append(charge)
        is_one = len(enforced) == 1 and not shadows and not without and enforced[0].statuses is None
        home = crc32(ip.encode()) % self._instances
        plan = Plan(enforced[0] if is_one else None, tuple(enforced), tuple(shadows), tuple(without), home)
        self._plans[method, target, ip, user] = plan
        return plan

    def _charge(self, rule: Rule, key: str) -> Charge:
        if not isinstance(rule.cost, int):
            raise ValueError(f"rule {rule.name!r}: its cost is a function of the request, which no log can be asked")
        if rule.charge is not None and not isinstance(rule.charge, Statuses):
            raise ValueError(f"rule {rule.name!r}: its charge is a function of the response; a log has its status only")
        tally = self.result.keys.setdefault((rule.name, key), Tally())
        bucket = self._buckets.get(key) or self._bucket(rule, key)
        return Charge(rule.cost, rule.charge, tally, bucket)

    def _bucket(self, rule: Rule, key: str) -> Bucket:
        screen = Screen(rule.quota, self._now, partial(self._end, key), is_exact=self._is_exact)
        found = self._buckets[key] = Bucket(key, rule.quota, screen)
        return found


def _asked(limiter: SimulatedLimiter, costs: dict[str, int]) -> str | None:
    """Charge all keys or none; return the one that is short."""
    if len(costs) == 1:
        ((key, cost),) = costs.items()
        return None if limiter.try_acquire(key, cost) else key
    for key, decision in limiter.decide_all(costs).items() if costs else ():
        if not decision.allowed:
            return key
    return None


def _take_back(limiter: SimulatedLimiter, charges: tuple[Charge, ...], status: int) -> None:
    """Return what this status does not charge."""
    for charge in charges:
        if charge.statuses is not None and charge.cost and not charge.statuses(_Response(status)):
            if charge.bucket.screen.is_sampled or not charge.bucket.screen.is_open:
                limiter.refund(charge.bucket.key, charge.cost)
            charge.bucket.screen.take_back(charge.cost)

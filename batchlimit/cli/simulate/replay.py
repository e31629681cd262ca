"""Sends each line of a log to one of the instances, by the rules, and counts what became of it."""

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from types import SimpleNamespace
from urllib.parse import unquote
from zlib import crc32

from batchlimit.cli.simulate.fleet import Fleet
from batchlimit.cli.simulate.log import CLIENTS, Charge, Line, Route, Way, instants, pause
from batchlimit.cli.simulate.result import ReplayTally, Result
from batchlimit.cli.simulate.screen import CallSample, Screen
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
        self._known: dict[str, dict[object, Charge | None]] = {rule.name: {} for rule in rules}
        self._screens: dict[str, Screen] = {}  # by what the store has their keys under
        self._now = 0.0
        self.result = Result()

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
        for screen in self._screens.values():
            self._sample.settle(screen)
            screen.trust.settle()
        trusted = sum(screen.trust.calls for screen in self._screens.values())
        result.calls = self._fleet.store.calls + self._sample.calls + round(trusted)
        return result

    def _instant(self, at: float, together: list[Line]) -> int:
        """Replay the lines of one instant; return how many were admitted."""
        step, admitted = pause(at, len(together)), 0
        for line in together:
            ways, way = self._routes.get(line[1:3]) or self._route(*line[1:3])
            charge, passed = way.known.get(way.client(line)) if way is not None else None, None
            if charge is not None:
                screen = charge.screen
                # Where reservoirs may have to decide, an instance has to be chosen first.
                if not screen.is_sampled if screen.is_open else screen.trust.until > at:
                    passed = self._passes(charge, at)
            if charge is None or passed is None:
                passed = self._decided(ways, line, at)
            else:
                charge.tally.admitted += passed
                charge.tally.refused += not passed
            admitted += passed
            at += step
        return admitted

    def _decided(self, ways: list[Way], line: Line, at: float) -> bool:
        """Decide a request of several rules, or of one that arithmetic does not decide."""
        self._fleet.move(at)
        is_near = self._by is Spread.CLIENT
        home = crc32(line[3].encode()) % self._instances if is_near else int(self._random.random() * self._instances)
        limiter, enforced, shadows = self._fleet.limiters[home], list[Charge](), list[Charge]()
        for way in ways:
            if (charge := self._found(way, line)) is None:
                self.result.without_key[way.rule.name] += 1
            else:
                (enforced if way.rule.mode == "enforce" else shadows).append(charge)
        short = self._refused(limiter, enforced, at)
        for charge in enforced:
            charge.tally.admitted += short is None
            charge.tally.refused += charge.screen.key == short
        if short is None:
            for charge in shadows:
                is_short = self._refused(limiter, [charge], at) is not None
                charge.tally.admitted += not is_short
                charge.tally.refused += is_short
            _take_back(limiter, enforced, line[5], at)
        return short is None

    def _refused(self, limiter: RateLimiter, charges: Sequence[Charge], at: float) -> str | None:
        """Charge all of them or none; return the key that is short."""
        verdicts = [(charge, self._passes(charge, at)) for charge in charges]
        short = next((charge.screen.key for charge, passes in verdicts if passes is False), None)
        if short is None:
            asked = [charge for charge, passes in verdicts if passes is None]
            short = _asked(limiter, asked)
            self.result.asked += len(asked)
            for charge in asked:
                self._compare(charge, at, is_admitted=short is None, is_alone=len(charges) == 1)
        if short is not None:
            for charge, passes in verdicts:
                if passes:
                    charge.screen.take_back(charge.cost)
        return short

    def _passes(self, charge: Charge, at: float) -> bool | None:
        """Whether arithmetic admits this charge: then it is charged. None: reservoirs decide."""
        screen, trust = charge.screen, charge.screen.trust
        if screen.is_open or (trust.until <= at and screen.reopens(at)):
            is_sampled = screen.is_sampled
            if screen.passes(at, charge.cost):
                return None if is_sampled else True
            self._open(screen, at)
            return None
        if trust.until == -math.inf:
            return None
        if trust.until <= at and not trust.lasts(at):
            self._open(screen, at)
            return None
        trust.count += 1  # the plain bucket decides
        return screen.spends(at, charge.cost, trust.pace)

    def _compare(self, charge: Charge, at: float, *, is_admitted: bool, is_alone: bool) -> None:
        """Charge the plain bucket too, and compare; what another key may have refused is not charged."""
        screen, trust = charge.screen, charge.screen.trust
        if screen.is_open or self._is_exact:
            return
        cost = charge.cost if is_alone or is_admitted else 0
        trust.add(is_admitted * cost, screen.spends(at, cost) * cost)
        if trust.is_due(at):
            plain, screen.levels = screen.levels, self._fleet.levels(stored(screen.key))
            trust.judge(at, screen.levels[0] - plain[0])

    def _call(self, name: str) -> None:
        """Take note of a call of the store."""
        screen = self._screens[name]
        self._sample.call(screen.kind)
        screen.trust.called += 1

    def _end(self, screen: Screen) -> None:
        """End a stretch, and begin the next one: with reservoirs if there are too few samples of its kind."""
        self._sample.settle(screen)
        self._sample.begin(screen)
        if screen.is_sampled:
            self._fleet.move(screen.last)
            self._fleet.store.begin(stored(screen.key), screen.quota, screen.levels)

    def _open(self, screen: Screen, at: float) -> None:
        """Have reservoirs decide from now on, with what is left; in a sampled stretch they have decided as well."""
        if screen.is_sampled:
            self._sample.settle(screen)
        else:
            self._fleet.move(at)
            self._fleet.store.begin(stored(screen.key), screen.quota, screen.levels)
        screen.count, screen.is_sampled, screen.kind = 0, False, None
        screen.trust.begin(at)

    def _route(self, method: str, target: str) -> Route:
        if len(self._routes) >= _MOST_ROUTES:
            self._routes.clear()
        ways = list[Way]()
        for rule, template, parameters in self._rules.templates(method, unquote(target.partition("?")[0])):
            fields = set(template.fields)
            is_shared = fields <= {"ip", "user"}  # else the path has a part in the key
            client = CLIENTS["ip" in fields, "user" in fields]
            ways.append(Way(rule, template, parameters, client, self._known[rule.name] if is_shared else {}))
        is_one = len(ways) == 1 and ways[0].rule.mode == "enforce" and ways[0].rule.charge is None
        route = self._routes[method, target] = ways, ways[0] if is_one else None
        return route

    def _found(self, way: Way, line: Line) -> Charge | None:
        """Return what a rule charges; None: it has no key."""
        client = way.client(line)
        if client not in way.known:
            try:
                key = way.template.fill({"ip": line[3], "user": line[4]}, way.parameters)
            except NoKey:
                way.known[client] = None
            else:
                way.known[client] = self._charge(way.rule, key)
        return way.known[client]

    def _charge(self, rule: Rule, key: str) -> Charge:
        if not isinstance(rule.cost, int):
            raise ValueError(f"rule {rule.name!r}: its cost is a function of the request, which no log can be asked")
        if rule.charge is not None and not isinstance(rule.charge, Statuses):
            raise ValueError(f"rule {rule.name!r}: its charge is a function of the response; a log has its status only")
        tally, name = self.result.keys.setdefault((rule.name, key), ReplayTally()), stored(key)
        if (screen := self._screens.get(name)) is None:
            screen = self._screens[name] = Screen(rule.quota, self._now, self._end, key, is_exact=self._is_exact)
        return Charge(rule.cost, rule.charge, tally, screen)


def _asked(limiter: RateLimiter, charges: Sequence[Charge]) -> str | None:
    """Charge all keys or none; return the one that is short."""
    if len(charges) == 1:
        key = charges[0].screen.key
        return None if limiter.try_acquire(key, charges[0].cost) else key
    costs = Counter[str]()
    for charge in charges:
        costs[charge.screen.key] += charge.cost
    decisions = limiter.decide_all(costs) if costs else {}
    return next((key for key, decision in decisions.items() if not decision.allowed), None)


def _take_back(limiter: RateLimiter, charges: Sequence[Charge], status: int, at: float) -> None:
    """Return what this status does not charge; to reservoirs too, if they were charged."""
    for charge in charges:
        if charge.statuses is not None and charge.cost and not charge.statuses(SimpleNamespace(status=status)):
            screen = charge.screen
            if screen.is_sampled if screen.is_open else screen.trust.until <= at:
                limiter.refund(screen.key, charge.cost)
            screen.take_back(charge.cost)

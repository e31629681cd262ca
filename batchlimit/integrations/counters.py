"""What became of requests, by rule: so that nothing passes unlimited without a trace."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import TYPE_CHECKING

from batchlimit.events import log_event
from batchlimit.integrations.checks import FIRST, CheckName, Checks
from batchlimit.rules import Rule
from batchlimit.rules.key import KeyTemplate

if TYPE_CHECKING:
    from batchlimit import AsyncRateLimiter, RateLimiter


@dataclass(slots=True)
class RuleCounts:
    """What became of the requests that one rule matched. None counts as two of acquired to store_away.

    Attributes:
        matched: requests that the rule matched.
        acquired: of those, the ones that were charged to it.
        refused: the ones that were beyond its quota.
        shadow_refused: the ones that it would have refused, were it not in shadow mode.
        no_key: the ones whose key or cost could not be made: refused, or admitted by `unidentified="admit"`.
        store_away: the ones that it could not decide, since the store was away: `on_failure` refused or admitted them.
        settled: the ones whose charge the response changed.
        faults: how often the limiter, or a function of the application, raised for a request of this rule.

    Example:
        >>> RuleCounts(matched=3, acquired=2, refused=1).refused
        1
    """

    matched: int = 0
    acquired: int = 0
    refused: int = 0
    shadow_refused: int = 0
    no_key: int = 0
    store_away: int = 0
    settled: int = 0
    faults: int = 0


@dataclass(frozen=True, slots=True)
class EnforcementStatistics:
    """What became of all requests.

    Attributes:
        requests: requests that were looked at.
        unmatched: of those, the ones that no rule matched; they are not limited.
        rules: the RuleCounts by the name of the rule.
        findings: what the checks found: the names of the rules concerned, by the name of the check; "" where no rule is
            meant (default: nothing).
        limiter: the limiter, if the front made it from a URL: metrics are of both. A copy has none (default None).
        exempt: of the requests, the ones that no rule is for (default 0).

    Example:
        >>> EnforcementStatistics(3, 1, {"login": RuleCounts(matched=2)}).rules["login"].matched
        2
    """

    requests: int
    unmatched: int
    rules: Mapping[str, RuleCounts]
    findings: Mapping[CheckName, tuple[str, ...]] = field(default_factory=dict)
    limiter: "RateLimiter | AsyncRateLimiter | None" = field(default=None, compare=False, repr=False)
    exempt: int = 0

    def __reduce__(self) -> "tuple[type[EnforcementStatistics], tuple[object, ...]]":
        return EnforcementStatistics, (self.requests, self.unmatched, self.rules, self.findings, None, self.exempt)


class Tally:
    """The counts of one rule, or of rules charged together. `next(tally.matched)` counts one, in C, without a lock."""

    __slots__ = (*RuleCounts.__slots__,)

    def __init__(self) -> None:
        self.matched, self.acquired, self.refused, self.shadow_refused = count(), count(), count(), count()
        self.no_key, self.store_away, self.settled, self.faults = count(), count(), count(), count()


def read(counter: "count[int]") -> int:
    """Return how often a counter was counted; nothing but its text tells, without counting again."""
    return int(repr(counter)[len("count(") : -1])


class Faults:
    """Tells the log of faults that each request may repeat."""

    def __init__(self, pause: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause, self._clock = pause, clock
        self._told: dict[Hashable, tuple[float, int]] = {}
        self._lock = threading.RLock()  # a destructor may have something to tell while its thread is inside

    def tell(
        self, what: Hashable, message: str, *arguments: object, level: int = logging.ERROR, trace: bool = True
    ) -> None:
        """Write to the log, unless this thing was written less than a minute ago."""
        with self._lock:
            now = self._clock()
            quiet_until, missed = self._told.get(what, (-inf, 0))
            is_due = now >= quiet_until
            self._told[what] = (now + self._pause, 0) if is_due else (quiet_until, missed + 1)
        if is_due:
            error = arguments[-1] if trace and arguments and isinstance(arguments[-1], BaseException) else None
            if missed:
                message, arguments = f"{message} (and %d times more since the last message)", (*arguments, missed)
            log_event("web.fault", message, *arguments, error=error, level=level)


class Counters:
    """Counts by rule, and has the log told of what an operator should know."""

    def __init__(self, rules: Iterable[Rule], silence: float, clock: Callable[[], float], checks: Checks) -> None:
        self.requests, self.unmatched, self.asked_after_all, self.exempt = count(), count(), count(), count()
        self.rules: dict[str, Tally] = {}
        self.together: dict[tuple[str, ...], Tally] = {}  # those charged to exactly these rules
        self.follow(rules)
        self.checks, self._faults = checks, Faults(clock=clock)
        self.clock, self._silent_until = clock, clock() + silence
        self.looks_at = -inf  # when to `look` at the next request
        self._looks = FIRST if "one-key" in checks.on else 0
        self._constant: dict[str, object] | None = None

    def follow(self, rules: Iterable[Rule]) -> None:
        """Count these rules from now on; what was counted of others stays."""
        rules = tuple(rules)
        self.rules = self.rules | {rule.name: Tally() for rule in rules if rule.name not in self.rules}
        self._of_routes = frozenset(rule.name for rule in rules if not rule.match)
        self._fields = {rule.name: KeyTemplate(rule.key).fields for rule in rules}

    def look(self, identity: Mapping[str, object]) -> None:
        """Look at those who ask first; see whether some rule has matched none for too long."""
        if self.checks.lock is not threading.Lock:
            self.checks.tell("late-patch")
        if self._looks > 0:
            self._look(identity)
        if self.clock() >= self._silent_until:
            self._silent_until = inf
            for name in self.rules:
                if not self._counts(name).matched:
                    remedy = "does a route ask for its key?" if name in self._of_routes else "is its `match` right?"
                    self.checks.tell("silent-rule", read(self.requests), remedy, rule=name)
        if self._looks <= 0:
            self.looks_at = self._silent_until

    def fault(self, what: str, rules: Collection[str], message: str, *arguments: object) -> None:
        """Count a fault by rule, and have the log told once a minute."""
        for name in rules:
            if (tally := self.rules.get(name)) is not None:
                next(tally.faults)
        self._faults.tell((what, *rules), message, *arguments)

    def unanswered(self, rules: Collection[str], error: Exception) -> None:
        """Count an `on_rejected` that raised, by the rules that refused, and have the log told once a minute."""
        self.fault("on_rejected", rules, "on_rejected raised, so the answer is problem details: %s", error)

    def away(self, rule: str, error: Exception) -> None:
        """Count a store that is away, and have the log told once a minute."""
        next(self.rules[rule].store_away)
        message = "rule %r could not be asked, for the store is away: %s"
        self._faults.tell(("away", rule), message, rule, error, level=logging.WARNING, trace=False)

    def accuse(self, what: str, message: str, error: Exception) -> None:
        """Tell of a mistake in the application's code, which is the first argument; the error says all there is."""
        self._faults.tell(("", what), message, what, error, trace=False)

    def statistics(self) -> EnforcementStatistics:
        """Return the counts so far, as a copy."""
        copies = {name: self._counts(name) for name in self.rules}
        unmatched = read(self.unmatched) - read(self.asked_after_all)
        requests, exempt = read(self.requests), read(self.exempt)
        found = self.checks.findings
        return EnforcementStatistics(requests, unmatched, copies, found, exempt=exempt)

    def _counts(self, name: str) -> RuleCounts:
        """Return the counts of a rule, alone and together with others."""
        tallies = [self.rules[name], *[tally for names, tally in list(self.together.items()) if name in names]]
        return RuleCounts(*[sum(read(getattr(each, what)) for each in tallies) for what in Tally.__slots__])

    def _look(self, identity: Mapping[str, object]) -> None:
        """See which values stay the same for all of the first requests, and which rules have no other ones."""
        same = {} if not isinstance(identity, dict) else identity
        if self._constant is None:
            self._constant = dict(same)
        self._constant = {name: each for name, each in self._constant.items() if same.get(name) == each}
        self._looks = self._looks - 1 if self._constant else 0
        if self._looks > 0 or not self._constant:
            return
        for name, fields in self._fields.items():
            if fields and self._constant.keys() >= set(fields) and self._counts(name).matched:
                self.checks.tell("one-key", FIRST, " and ".join(f"{{{each}}}" for each in fields), rule=name)

"""What became of requests, by rule: so that nothing passes unlimited without a trace."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from batchlimit.rules import Rule

_logger = logging.getLogger("batchlimit")


@dataclass(slots=True)
class RuleCounts:
    """What became of the requests that one rule matched. With threads a few may be lost, for no lock is taken.

    Attributes:
        matched: requests that the rule matched.
        acquired: of those, the ones that were charged to it.
        refused: the ones that it refused.
        shadow_refused: the ones that it would have refused, were it not in shadow mode.
        no_key: the ones whose key or cost could not be made.
        store_away: the ones that it could not decide, since the store was away.
        settled: the ones whose charge the response changed.

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


@dataclass(frozen=True, slots=True)
class EnforcementStatistics:
    """What became of all requests.

    Attributes:
        requests: requests that were looked at.
        unmatched: of those, the ones that no rule matched; they are not limited.
        rules: the RuleCounts by the name of the rule.

    Example:
        >>> EnforcementStatistics(3, 1, {"login": RuleCounts(matched=2)}).rules["login"].matched
        2
    """

    requests: int
    unmatched: int
    rules: Mapping[str, RuleCounts]


class Counters:
    """Counts by rule, and tells the log once of each thing that an operator should know.

    Args:
        rules: the rules.
        silence: seconds after which a rule that has matched nothing is told of.
        clock: returns seconds.
    """

    def __init__(self, rules: Iterable[Rule], silence: float, clock: Callable[[], float]) -> None:
        self.requests = self.unmatched = 0
        rules = tuple(rules)
        self.rules = {rule.name: RuleCounts() for rule in rules}
        self._of_routes = frozenset(rule.name for rule in rules if not rule.match)
        self._told: set[tuple[str, str]] = set()
        self._clock = clock
        self._silence, self._silent_until = silence, clock() + silence

    def __repr__(self) -> str:
        return f"<Counters of {self.requests} requests>"

    def request(self) -> None:
        """Count a request, and see whether some rule has matched none for too long."""
        self.requests += 1
        if self._clock() >= self._silent_until:
            self._silent_until = float("inf")
            for name, counts in self.rules.items():
                if not counts.matched:
                    self.tell(name, "silence", self._silent(name), self.requests)

    def nothing_matched(self, method: str, path: str) -> None:
        """Count a request that no rule matched."""
        self.unmatched += 1
        unless = ", unless its route asks for a rule" if self._of_routes else ""
        self.tell("", "unmatched", "no rule matches %s %r: it is not limited%s", method, path[:200], unless)

    def tell(self, rule: str, what: str, message: str, *arguments: object) -> None:
        """Write to the log, once for each rule and thing; the rule, if there is one, is the first argument."""
        if (rule, what) not in self._told:
            self._told.add((rule, what))
            _logger.warning(message, *((rule, *arguments) if rule else arguments))

    def accuse(self, what: str, message: str, error: Exception) -> None:
        """Write an error of the application's code to the log, once for each thing, which is the first argument."""
        if ("", what) not in self._told:
            self._told.add(("", what))
            _logger.error(message, what, error)

    def statistics(self) -> EnforcementStatistics:
        """Return the counts so far, as a copy."""
        copies = {
            name: RuleCounts(*(getattr(each, one.name) for one in fields(each))) for name, each in self.rules.items()
        }
        return EnforcementStatistics(self.requests, self.unmatched, MappingProxyType(copies))

    def _silent(self, name: str) -> str:
        if name in self._of_routes:
            return "no route asked for rule %r in %d requests: does one have its key?"
        return "rule %r matched none of %d requests: is its `match` right?"

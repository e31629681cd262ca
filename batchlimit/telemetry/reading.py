"""One reading of statistics: which metric has which value now. No label ever holds a key."""

import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from batchlimit import Statistics
from batchlimit.base.histogram import Histogram
from batchlimit.base.setting import of_kind
from batchlimit.concurrency import ConcurrencyStatistics, KeyedStatistics, PatternStatistics
from batchlimit.events import log_event
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.shared.holdings import SharedStatistics
from batchlimit.telemetry import metrics
from batchlimit.telemetry.metrics import Metric

MOST_POLICIES = 200
"""Rules and patterns that have a label of their own; all others together are "other"."""


class Series(NamedTuple):
    """One time series; of one that `Sources` read the first value is the name of its source, the label "limiter"."""

    metric: Metric  # what is measured
    values: tuple[str, ...] = ()  # the value of each of its labels, in their order


Value = float | Histogram
Reading = dict[Series, Value]


def read(found: object) -> Reading:
    """Return the value of each series in the statistics of one limiter or web front; else TypeError."""
    told = next((each for kind, each in _TOLD.items() if isinstance(found, kind)), None)
    if told is None:
        raise TypeError(f"there are no metrics of {found!r}")
    reading: Reading = {}
    for series, value in told(found):  # those of all policies that are "other" have the same labels
        reading[series] = merged(series.metric, reading.get(series), value)
    return reading


def _rate_limiter(seen: Statistics) -> Iterator[tuple[Series, Value]]:
    for name, policy in seen.policies.items():
        tokens = {
            ("acquired", "memory"): max(0, policy.admitted - policy.from_store - policy.fallback - policy.opened),
            ("acquired", "store"): policy.from_store,
            ("acquired", "fallback"): policy.fallback,
            ("acquired", "open"): policy.opened,
            ("refused", "denied"): policy.refused - policy.by_store - policy.timed_out,
            ("refused", "store"): policy.by_store,
            ("timed_out", "store"): policy.timed_out,
        }
        for result_and_source, value in tokens.items():
            yield Series(metrics.TOKENS, (name, *result_and_source)), value
        yield Series(metrics.SHADOW, (name,)), policy.shadow_refused
        yield Series(metrics.LOW, (name,)), policy.low
        yield Series(metrics.QUEUED, (name,)), policy.waiting
        if policy.waits.total:
            yield Series(metrics.WAITED, (name,)), policy.waits
    yield Series(metrics.KEYS), seen.keys
    yield Series(metrics.HELD), seen.held
    yield Series(metrics.OWED), seen.owed
    yield Series(metrics.OPERATIONS), seen.calls
    yield Series(metrics.DURATIONS), seen.durations
    yield Series(metrics.FAILURES), seen.failures
    yield Series(metrics.OUTAGES), seen.outages
    yield Series(metrics.RULES_FAILURES), seen.rules_failures
    yield Series(metrics.LOSSES), seen.losses
    yield Series(metrics.AVAILABLE), seen.available


def _concurrency_limiter(seen: ConcurrencyStatistics) -> Iterator[tuple[Series, Value]]:
    yield Series(metrics.LIMIT, ("",)), seen.limit
    yield Series(metrics.SETTLED, ("",)), seen.settled_limit
    for direction in ("raised", "lowered"):
        for why, count in getattr(seen, f"{direction}_by").items():
            yield Series(metrics.LIMIT_CHANGES, ("", direction, why)), count
    yield Series(metrics.RATIO, ("",)), seen.ratio
    yield Series(metrics.LAST_RTT, ("",)), seen.last_rtt
    yield from _calls("", seen)
    yield Series(metrics.CALLS_WAITED, ("",)), seen.waits
    yield from _watchers(seen)


def _keyed(seen: KeyedStatistics) -> Iterator[tuple[Series, Value]]:
    for number, (name, pattern) in enumerate(seen.patterns.items()):
        policy = _policy(name, number)
        yield from _calls(policy, pattern)
        if pattern.waits.total:
            yield Series(metrics.CALLS_WAITED, (policy,)), pattern.waits
    yield from _watchers(seen)


def _watchers(seen: ConcurrencyStatistics | KeyedStatistics) -> Iterator[tuple[Series, Value]]:
    for each in seen.watchers:
        for result in ("polls", "events", "errors", "timeouts"):
            yield Series(metrics.WATCHED, (each.name, result)), getattr(each, result)


def _calls(policy: str, seen: ConcurrencyStatistics | PatternStatistics) -> Iterator[tuple[Series, Value]]:
    yield Series(metrics.IN_FLIGHT, (policy,)), seen.in_flight
    yield Series(metrics.WAITING, (policy,)), seen.waiting
    for operation, seconds in islice(seen.baselines.items(), MOST_POLICIES):
        yield Series(metrics.BASELINE, (policy, operation)), seconds
    for result in ("succeeded", "dropped", "ignored", "abandoned", "bypassed", "shed"):
        yield Series(metrics.CALLS, (policy, result, "")), getattr(seen, result)
    for reason, value in seen.refused.items():
        yield Series(metrics.CALLS, (policy, "refused", reason)), value


def _shared_limiter(seen: SharedStatistics) -> Iterator[tuple[Series, Value]]:
    yield Series(metrics.IN_FLIGHT, ("",)), sum(each.in_flight for each in seen.keys.values())
    yield Series(metrics.WAITING, ("",)), sum(each.waiting for each in seen.keys.values())
    yield Series(metrics.CALLS, ("", "admitted", "")), seen.admitted
    yield Series(metrics.CALLS, ("", "refused", "")), seen.refused
    yield Series(metrics.CALLS, ("", "lost", "")), seen.lost
    yield Series(metrics.OPERATIONS), seen.asks


def _front(seen: EnforcementStatistics) -> Iterator[tuple[Series, Value]]:
    yield Series(metrics.REQUESTS, ("", "unmatched")), seen.unmatched
    yield Series(metrics.REQUESTS, ("", "exempt")), seen.exempt
    for number, (name, counts) in enumerate(seen.rules.items()):
        for result in ("acquired", "refused", "shadow_refused", "no_key", "store_away"):
            yield Series(metrics.REQUESTS, (_policy(name, number), result)), getattr(counts, result)
    if seen.limiter is not None:
        yield from _rate_limiter(seen.limiter.statistics())


def _policy(name: str, number: int) -> str:
    return name if number < MOST_POLICIES else "other"


_TOLD: dict[type, Callable[[Any], Iterator[tuple[Series, Value]]]] = {
    Statistics: _rate_limiter,
    ConcurrencyStatistics: _concurrency_limiter,
    KeyedStatistics: _keyed,
    SharedStatistics: _shared_limiter,
    EnforcementStatistics: _front,
}


def merged(metric: Metric, one: Any, other: Any) -> Any:
    """Return what two values of a metric are together; one of them may be missing."""
    if one is None:
        return other
    if isinstance(one, Histogram):
        return one.plus(other)
    return one + other if metric.merge == "sum" else min(one, other) if metric.merge == "min" else max(one, other)


@dataclass(eq=False)
class _NamedSource:
    """One limiter or front, and the counters that were last read of it."""

    name: str
    find: Callable[[], Any]
    counted: Reading = field(default_factory=dict, repr=False)
    has_told: bool = False  # that it cannot be read

    def read(self) -> Reading | None:
        """Return its series now; None: nobody has it any more. No counter falls, but in a forked child."""
        if (source := self.find()) is None:
            return None
        try:
            found = read(source.statistics())
        except Exception as error:  # noqa: BLE001  the other sources are read
            if not self.has_told:
                self.has_told = True
                message = "no metrics of %r: its statistics cannot be read"
                log_event("telemetry.unread", message, self.name or self, error=error, limiter=self.name)
            return {}
        for series, before in self.counted.items():
            now = found.get(series, before)  # less where a limiter uncounts tokens that came too late to be spent
            found[series] = now if isinstance(now, Histogram) else max(now, before)  # type: ignore[type-var]
        self.counted = {series: value for series, value in found.items() if series.metric.kind != "gauge"}
        return found


class Sources:
    """Limiters and fronts that are read together; each is gone when nobody else has it any more."""

    def __init__(self) -> None:
        self._found: list[_NamedSource] = []
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"<Sources {[each.name for each in self._found]}>"

    def __len__(self) -> int:
        """How many sources there are, those included that were gone since the last reading."""
        return len(self._found)

    def add(self, name: str, *sources: Any) -> None:
        """Read these too, which have `statistics`. Of sources of one name most values are added up."""
        of_kind("name", name, str, "a str")
        for source in sources:
            if not callable(getattr(source, "statistics", None)):
                raise TypeError(f"{source!r} counts nothing: give a limiter, or a web front, which has statistics()")
            find: Callable[[], Any]
            try:
                find = weakref.ref(source)
            except TypeError:  # it cannot be referred to weakly
                find = partial(lambda one: one, source)
            self._found.append(_NamedSource(name, find))

    def read(self, *others: "Sources") -> Reading:
        """Return the value of each series now, of these and of others: of each source once."""
        reading, told = Reading(), set[tuple[str, int]]()
        for sources in (self, *others):
            if sources._process != os.getpid():  # in a forked child limiters count from 0: the rest is the parent's
                sources._process = os.getpid()
                for source in sources._found:
                    source.counted = {}
            for source in list(sources._found):
                if (which := (source.name, id(source.find()))) in told:
                    continue
                told.add(which)
                if (found := source.read()) is None:
                    sources._found.remove(source)
                    continue
                for series, value in found.items():
                    at = Series(series.metric, (source.name, *series.values))
                    reading[at] = merged(at.metric, reading.get(at), value)
        return reading


Add = Callable[[Series, float], None]


class Changes:
    """Tells `add` by how much series have changed; of histograms each duration, for client libraries take them so."""

    def __init__(self, add: Add, told: Reading | None = None) -> None:
        self._add = add
        self._told: dict[Series, Any] = {
            series: value for series, value in (told or {}).items() if series.metric.kind != "gauge"
        }

    def tell(self, series: Series, now: Value) -> None:
        """Tell of what was added since the last time."""
        before = self._told.get(series)
        if isinstance(now, Histogram):
            more, self._told[series] = now.since(before or Histogram())
            for seconds, many in more:
                for _ in range(many):
                    self._add(series, seconds)
            return
        change = now - (before or 0)
        if change < 0 and series.metric.kind == "counter":  # one source of several is missing: wait for more
            return
        if change or before is None:  # a series begins with 0
            self._add(series, change)
            self._told[series] = now

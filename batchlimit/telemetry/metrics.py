"""The metrics: their names, kinds and units, as dashboards and alerts know them."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Merge = Literal["sum", "min", "max"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str  # its name to OpenTelemetry; Prometheus writes "_" for ".", "_seconds" and, after a counter, "_total"
    kind: Kind  # "counter" only grows, "gauge" is a value now, "histogram" counts durations by how long they are
    unit: str  # what it counts, as OpenTelemetry writes units: things in braces, "1" for a fact
    text: str  # one sentence for those who see it first
    labels: tuple[str, ...] = ()  # the names of its labels, beside "limiter"
    merge: Merge = "sum"  # what several limiters, or workers, have together

    @property
    def prometheus_name(self) -> str:
        """Its name to Prometheus, without "_total"."""
        return self.name.replace(".", "_") + ("_seconds" if self.unit == "s" else "")


def _metric(kind: Kind, name: str, unit: str, text: str, labels: str = "", merge: Merge = "sum") -> Metric:
    return Metric(f"batchlimit.{name}", kind, unit, text, tuple(labels.split()), merge)


_counter, _gauge = partial(_metric, "counter"), partial(_metric, "gauge")
_durations = partial(_metric, "histogram", unit="s")

REQUESTS = _counter("requests", "{request}", "Requests that web rules decided, by rule and result.", "policy result")
TOKENS = _counter(
    "tokens", "{token}", "Tokens that callers asked for, by rule, result, and who decided.", "policy result source"
)
SHADOW = _counter(
    "shadow_refused",
    "{token}",
    "Tokens that were admitted, and refused by a quota in shadow mode or on trial.",
    "policy",
)
KEYS = _gauge("keys", "{key}", "Keys in memory.")
LOW = _gauge("low_keys", "{key}", "Keys in use whose bucket was last seen with less than 20 %.", "policy")
QUEUED = _gauge("queued_requests", "{request}", "Callers that wait for tokens.", "policy")
WAITED = _durations("time_in_queue", text="How long callers waited that had to wait for tokens.", labels="policy")
HELD = _gauge("lease.held", "{token}", "Tokens leased and not yet spent.")
OWED = _gauge("lease.owed", "{token}", "Tokens used beyond estimates, not charged yet.")
OPERATIONS = _counter("store.operations", "{call}", "Calls of the store.")
DURATIONS = _durations("store.duration", text="How long calls of the store took.")
FAILURES = _counter("store.failures", "{call}", "Calls that the store did not answer in time.")
OUTAGES = _counter("store.outages", "{outage}", "Times that the circuit was opened.")
LOSSES = _counter("store.losses", "{bucket}", "Buckets found without their state.")
RULES_FAILURES = _counter("rules.failures", "{failure}", "Overrides or files of rules that could not be used.")
AVAILABLE = _gauge("store.available", "1", "1 while the store is asked, 0 while a circuit is open.", merge="min")
LIMIT = _gauge("concurrency.limit", "{call}", "Calls that may be under way.", "policy")
SETTLED = _gauge("concurrency.settled_limit", "{call}", "The limit without the drain under way.", "policy")
LIMIT_CHANGES = _counter(
    "concurrency.limit_changes",
    "{change}",
    "How often the limit changed, and why; a drain is no trouble.",
    "policy direction why",
)
RATIO = _gauge(
    "concurrency.ratio", "1", "How many times as long as without a queue calls take; 0: unknown.", "policy", merge="max"
)
BASELINE = _gauge(
    "concurrency.baseline",
    "s",
    "How long calls take without a queue, as the law holds.",
    "policy operation",
    merge="max",
)
LAST_RTT = _gauge(
    "concurrency.last_duration", "s", "How long the call took that was the last to succeed.", "policy", merge="max"
)
IN_FLIGHT = _gauge("concurrency.in_flight", "{call}", "Calls under way.", "policy")
WAITING = _gauge("concurrency.queued_requests", "{call}", "Callers in the queue.", "policy")
CALLS = _counter(
    "concurrency.requests", "{call}", "Calls by how they ended, or why they were refused.", "policy result reason"
)
CALLS_WAITED = _durations(
    "concurrency.time_in_queue", text="How long callers waited that had to wait for a place.", labels="policy"
)
WATCHED = _counter("concurrency.watcher.polls", "{poll}", "Polls of watchers, by what came of them.", "watcher result")

METRICS = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
"""All of them."""

"""The metrics: their names, kinds and units, as dashboards and alerts know them."""

from dataclasses import dataclass
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


def _metric(name: str, kind: Kind, unit: str, text: str, labels: str = "", merge: Merge = "sum") -> Metric:
    return Metric(f"batchlimit.{name}", kind, unit, text, tuple(labels.split()), merge)


REQUESTS = _metric(
    "requests", "counter", "{request}", "Requests that web rules decided, by rule and result.", "policy result"
)
TOKENS = _metric(
    "tokens",
    "counter",
    "{token}",
    "Tokens that callers asked for, by rule, result, and who decided.",
    "policy result source",
)
SHADOW = _metric(
    "shadow_refused",
    "counter",
    "{token}",
    "Tokens that were admitted, and refused by a quota in shadow mode or on trial.",
    "policy",
)
KEYS = _metric("keys", "gauge", "{key}", "Keys in memory.")
LOW = _metric("low_keys", "gauge", "{key}", "Keys in use whose bucket was last seen with less than 20 %.", "policy")
QUEUED = _metric("queued_requests", "gauge", "{request}", "Callers that wait for tokens.", "policy")
WAITED = _metric("time_in_queue", "histogram", "s", "How long callers waited that had to wait for tokens.", "policy")
HELD = _metric("lease.held", "gauge", "{token}", "Tokens leased and not yet spent.")
OWED = _metric("lease.owed", "gauge", "{token}", "Tokens used beyond estimates, not charged yet.")
OPERATIONS = _metric("store.operations", "counter", "{call}", "Calls of the store.")
DURATIONS = _metric("store.duration", "histogram", "s", "How long calls of the store took.")
FAILURES = _metric("store.failures", "counter", "{call}", "Calls that the store did not answer in time.")
OUTAGES = _metric("store.outages", "counter", "{outage}", "Times that the circuit was opened.")
LOSSES = _metric("store.losses", "counter", "{bucket}", "Buckets found without their state.")
RULES_FAILURES = _metric(
    "rules.failures", "counter", "{failure}", "Overrides or files of rules that could not be used."
)
AVAILABLE = _metric(
    "store.available", "gauge", "1", "1 while the store is asked, 0 while a circuit is open.", merge="min"
)
LIMIT = _metric("concurrency.limit", "gauge", "{call}", "Calls that may be under way.", "policy")
SETTLED = _metric("concurrency.settled_limit", "gauge", "{call}", "The limit without the drain under way.", "policy")
LIMIT_CHANGES = _metric(
    "concurrency.limit_changes",
    "counter",
    "{change}",
    "How often the limit changed, and why; a drain is no trouble.",
    "policy direction why",
)
RATIO = _metric(
    "concurrency.ratio",
    "gauge",
    "1",
    "How many times as long as without a queue calls take; 0: unknown.",
    "policy",
    merge="max",
)
BASELINE = _metric(
    "concurrency.baseline",
    "gauge",
    "s",
    "How long calls take without a queue, as the law holds.",
    "policy operation",
    merge="max",
)
LAST_RTT = _metric(
    "concurrency.last_duration",
    "gauge",
    "s",
    "How long the call took that was the last to succeed.",
    "policy",
    merge="max",
)
IN_FLIGHT = _metric("concurrency.in_flight", "gauge", "{call}", "Calls under way.", "policy")
WAITING = _metric("concurrency.queued_requests", "gauge", "{call}", "Callers in the queue.", "policy")
CALLS = _metric(
    "concurrency.requests",
    "counter",
    "{call}",
    "Calls by how they ended, or why they were refused.",
    "policy result reason",
)
CALLS_WAITED = _metric(
    "concurrency.time_in_queue", "histogram", "s", "How long callers waited that had to wait for a place.", "policy"
)
WATCHED = _metric(
    "concurrency.watcher.polls", "counter", "{poll}", "Polls of watchers, by what came of them.", "watcher result"
)

METRICS = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
"""All of them."""

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


REQUESTS = Metric(
    "batchlimit.requests",
    "counter",
    "{request}",
    "Requests that web rules decided, by rule and result.",
    ("policy", "result"),
)
TOKENS = Metric(
    "batchlimit.tokens",
    "counter",
    "{token}",
    "Tokens that callers asked for, by rule, result, and who decided.",
    ("policy", "result", "source"),
)
SHADOW = Metric(
    "batchlimit.shadow_refused",
    "counter",
    "{token}",
    "Tokens that were admitted, and refused by a quota in shadow mode or on trial.",
    ("policy",),
)
KEYS = Metric("batchlimit.keys", "gauge", "{key}", "Keys in memory.")
LOW = Metric(
    "batchlimit.low_keys", "gauge", "{key}", "Keys in use whose bucket was last seen with less than 20 %.", ("policy",)
)
QUEUED = Metric("batchlimit.queued_requests", "gauge", "{request}", "Callers that wait for tokens.", ("policy",))
HELD = Metric("batchlimit.lease.held", "gauge", "{token}", "Tokens leased and not yet spent.")
OWED = Metric("batchlimit.lease.owed", "gauge", "{token}", "Tokens used beyond estimates, not charged yet.")
WAITED = Metric(
    "batchlimit.time_in_queue",
    "histogram",
    "s",
    "How long callers waited that had to wait for tokens.",
    ("policy",),
)
DURATIONS = Metric("batchlimit.store.duration", "histogram", "s", "How long calls of the store took.")
OPERATIONS = Metric("batchlimit.store.operations", "counter", "{call}", "Calls of the store.")
FAILURES = Metric("batchlimit.store.failures", "counter", "{call}", "Calls that the store did not answer in time.")
OUTAGES = Metric("batchlimit.store.outages", "counter", "{outage}", "Times that the circuit was opened.")
LOSSES = Metric("batchlimit.store.losses", "counter", "{bucket}", "Buckets found without their state.")
RULES_FAILURES = Metric(
    "batchlimit.rules.failures", "counter", "{failure}", "Overrides or files of rules that could not be used."
)
AVAILABLE = Metric(
    "batchlimit.store.available", "gauge", "1", "1 while the store is asked, 0 while a circuit is open.", merge="min"
)

LIMIT = Metric("batchlimit.concurrency.limit", "gauge", "{call}", "Calls that may be under way.", ("policy",))
LIMIT_CHANGES = Metric(
    "batchlimit.concurrency.limit_changes",
    "counter",
    "{change}",
    "How often the limit changed, and why; a drain is no trouble.",
    ("policy", "direction", "why"),
)
SETTLED = Metric(
    "batchlimit.concurrency.settled_limit", "gauge", "{call}", "The limit without the drain under way.", ("policy",)
)
RATIO = Metric(
    "batchlimit.concurrency.ratio",
    "gauge",
    "1",
    "How many times as long as without a queue calls take; 0: unknown.",
    ("policy",),
    merge="max",
)
BASELINE = Metric(
    "batchlimit.concurrency.baseline",
    "gauge",
    "s",
    "How long calls take without a queue, as the law holds.",
    ("policy", "operation"),
    merge="max",
)
LAST_RTT = Metric(
    "batchlimit.concurrency.last_duration",
    "gauge",
    "s",
    "How long the call took that was the last to succeed.",
    ("policy",),
    merge="max",
)
IN_FLIGHT = Metric("batchlimit.concurrency.in_flight", "gauge", "{call}", "Calls under way.", ("policy",))
WAITING = Metric("batchlimit.concurrency.queued_requests", "gauge", "{call}", "Callers in the queue.", ("policy",))
CALLS = Metric(
    "batchlimit.concurrency.requests",
    "counter",
    "{call}",
    "Calls by how they ended, or why they were refused.",
    ("policy", "result", "reason"),
)
CALLS_WAITED = Metric(
    "batchlimit.concurrency.time_in_queue",
    "histogram",
    "s",
    "How long callers waited that had to wait for a place.",
    ("policy",),
)
WATCHED = Metric(
    "batchlimit.concurrency.watcher.polls",
    "counter",
    "{poll}",
    "Polls of watchers, by what came of them.",
    ("watcher", "result"),
)

METRICS = (
    REQUESTS,
    TOKENS,
    SHADOW,
    KEYS,
    LOW,
    QUEUED,
    WAITED,
    HELD,
    OWED,
    OPERATIONS,
    DURATIONS,
    FAILURES,
    OUTAGES,
    LOSSES,
    RULES_FAILURES,
    AVAILABLE,
    LIMIT,
    SETTLED,
    LIMIT_CHANGES,
    RATIO,
    BASELINE,
    LAST_RTT,
    IN_FLIGHT,
    WAITING,
    CALLS,
    CALLS_WAITED,
    WATCHED,
)
"""All of them."""

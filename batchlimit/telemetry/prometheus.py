"""Metrics for Prometheus, from one process or from several workers."""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

from batchlimit.base.lazy import needed

with needed(__name__, "prometheus", "prometheus-client", name="prometheus_client"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.multiprocess import mark_process_dead

from batchlimit.base import histogram
from batchlimit.telemetry import metrics
from batchlimit.telemetry.deltas import Deltas
from batchlimit.telemetry.reading import Labelled, Sources, Value

__all__ = ["Exporter", "export"]


def export(*sources: Any, name: str = "", registry: CollectorRegistry = REGISTRY, every: float = 1.0) -> "Exporter":
    """Let Prometheus see limiters and web fronts.

    One process: they are read when Prometheus scrapes, and calls pay nothing. Several workers, if prometheus-client's
    PROMETHEUS_MULTIPROC_DIR is set: a background thread adds what has changed to counters that all workers share.

    Args:
        *sources: limiters, and web fronts such as the middleware; each has `statistics()`.
        name: the value of their label "limiter" (default "").
        registry: where they are registered (default prometheus-client's own); not used with several workers.
        every: seconds between two looks, with several workers (default 1).

    Returns:
        The Exporter. It ends by itself with its sources; `close` ends it sooner.

    Raises:
        TypeError: a source has no `statistics`.

    Example:
        >>> from prometheus_client import CollectorRegistry, generate_latest
        >>> from batchlimit import RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", "2/hour")
        >>> registry = CollectorRegistry()
        >>> exporter = export(limiter, name="api", registry=registry)
        >>> [limiter.try_acquire("ann") for _ in range(3)]
        [True, True, False]
        >>> print(generate_latest(registry).decode())  # doctest: +ELLIPSIS
        # HELP batchlimit_tokens_total Tokens that callers asked for, by rule, result, and who decided.
        # TYPE batchlimit_tokens_total counter
        batchlimit_tokens_total{limiter="api",policy="*",result="acquired",source="memory"} 1.0
        batchlimit_tokens_total{limiter="api",policy="*",result="acquired",source="store"} 1.0
        ...
    """
    found = Sources()
    found.add(name, *sources)
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        return Exporter(found, deltas=Deltas(found, _add, every, then=_forget_dead_workers))
    return Exporter(found, registry=registry)


class Exporter:
    """What is exported; made by `export`."""

    def __init__(
        self, sources: Sources, *, registry: CollectorRegistry | None = None, deltas: Deltas | None = None
    ) -> None:
        self._sources, self._registry, self._deltas = sources, registry, deltas
        if registry is not None:
            registry.register(self)
        if deltas is not None:
            deltas.start()

    def __repr__(self) -> str:
        return f"<Exporter of {self._sources!r}>"

    def describe(self) -> list[Metric]:
        """Return nothing: prometheus-client asks for this so that it need not read when we are registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return every metric and its values now; prometheus-client calls this when it is scraped."""
        families: dict[metrics.Metric, Any] = {}
        for (series, limiter), value in self._sources.read().items():
            if (metric := series.metric) not in families:
                made = _FAMILIES[metric.kind](metric.prometheus_name, metric.text, labels=("limiter", *metric.labels))
                families[metric] = made
            families[metric].add_metric((limiter, *series.values), *_told(value))
        yield from families.values()

    def close(self) -> None:
        """Export nothing any more; with several workers what was counted so far stays."""
        if self._registry is not None:
            self._registry.unregister(self)
            self._registry = None
        if self._deltas is not None:
            self._deltas.stop()


_FAMILIES: dict[metrics.Kind, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def _told(value: Value) -> tuple[Any, ...]:
    """Return a value as a family takes it."""
    if not isinstance(value, histogram.Histogram):
        return (value,)
    bounds = (*map(str, histogram.BOUNDS), "+Inf")
    return list(zip(bounds, value.up_to, strict=True)), sum(value.seconds)


def _add(labelled: Labelled, change: float) -> None:
    """Add a change of one series to what prometheus-client adds up over all workers; to a histogram, a duration."""
    (metric, values), limiter = labelled
    child = _made(metric).labels(limiter, *values)
    if metric.kind == "histogram":
        child.observe(change)
    else:
        child.inc(change)


def _forget_dead_workers() -> None:
    """Have gauges tell no more of workers that were killed, by their files, if this process has such a file."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR", "")
    workers = {each.stem.rpartition("_")[2] for each in Path(folder).glob("gauge_live*_*.db")}
    if str(os.getpid()) in workers:
        for worker in filter(str.isdigit, workers):
            try:
                os.kill(int(worker), 0)
            except ProcessLookupError:
                with suppress(FileNotFoundError):  # another worker was faster
                    mark_process_dead(worker, folder)  # type: ignore[no-untyped-call]
            except PermissionError:  # it lives, and is somebody else's
                pass


_MODES: dict[metrics.Merge, Literal["livesum", "livemin", "livemax"]]
_MODES = {"sum": "livesum", "min": "livemin", "max": "livemax"}


@cache  # a process has each of them once
def _made(metric: metrics.Metric) -> Any:
    names = ("limiter", *metric.labels)
    if metric.kind == "counter":
        return Counter(metric.prometheus_name, metric.text, names)
    if metric.kind == "histogram":
        return Histogram(metric.prometheus_name, metric.text, names, buckets=histogram.BOUNDS)
    return Gauge(metric.prometheus_name, metric.text, names, multiprocess_mode=_MODES[metric.merge])

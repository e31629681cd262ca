"""Metrics for Prometheus, from one process or from several workers."""

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from batchlimit.base.lazy import needed

with needed(__name__, "prometheus", "prometheus-client", name="prometheus_client"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.multiprocess import mark_process_dead

from batchlimit.base import histogram
from batchlimit.base.forks import Forkables
from batchlimit.base.setting import between, of_kind
from batchlimit.telemetry import metrics
from batchlimit.telemetry.reading import Add, Changes, Series, Sources

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
    of_kind("registry", registry, CollectorRegistry, "a CollectorRegistry")
    between("every (seconds)", every, 0.0, threading.TIMEOUT_MAX, "(]")
    found = Sources()
    found.add(name, *sources)
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        return Exporter(found, deltas=Deltas(found, _add, every, then=_forget_dead_workers))
    return Exporter(found, registry=registry)


class Exporter:
    """What is exported; made by `export`."""

    def __init__(
        self, sources: Sources, *, registry: CollectorRegistry | None = None, deltas: "Deltas | None" = None
    ) -> None:
        self._sources, self._registry, self._deltas = sources, registry, deltas
        if registry is not None:
            registry.register(self)
        if deltas is not None:
            deltas.start()

    def __repr__(self) -> str:
        return f"<Exporter of {self._sources!r}>"

    def describe(self) -> list[Metric]:
        """Return nothing: so prometheus-client need not read when we are registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return every metric and its values now: the first exporter of a registry all, for a page has each once."""
        families: dict[metrics.Metric, Any] = {}
        # A registry keeps its collectors in this dict, those that registered first at first; only it knows who left.
        there = list(getattr(self._registry, "_collector_to_names", ()))
        page = [each._sources for each in there if isinstance(each, Exporter)]
        reading = self._sources.read(*page[1:]) if page and page[0] is self._sources else {}
        for (metric, labels), value in reading.items():
            if metric not in families:
                made = _FAMILIES[metric.kind](metric.prometheus_name, metric.text, labels=("limiter", *metric.labels))
                families[metric] = made
            told: tuple[Any, ...] = (value,)
            if isinstance(value, histogram.Histogram):
                told = list(zip(_BOUNDS, value.up_to, strict=True)), sum(value.seconds)
            families[metric].add_metric(labels, *told)
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
_BOUNDS = (*map(str, histogram.BOUNDS), "+Inf")


def _add(series: Series, change: float) -> None:
    """Add a change of one series to what prometheus-client adds up over all workers; to a histogram, a duration."""
    metric = series.metric
    child = _made(metric).labels(*series.values)
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


@cache  # a process has each of them once
def _made(metric: metrics.Metric) -> Any:
    mode: Any = f"live{metric.merge}"
    kinds: dict[metrics.Kind, Callable[..., Any]] = {
        "counter": Counter,
        "gauge": partial(Gauge, multiprocess_mode=mode),
        "histogram": partial(Histogram, buckets=histogram.BOUNDS),
    }
    return kinds[metric.kind](metric.prometheus_name, metric.text, ("limiter", *metric.labels))


_PATIENCE = 1.0
"""A fork waits so long (s) for a look at most: a look takes milliseconds, and one that forks itself never ends."""


class Deltas:
    """Reads sources now and then, and tells by how much each series has changed.

    It ends when all sources are gone. It goes on in a forked child, from what the child has counted by then: what its
    parent counted is the parent's. `then` is called after each reading in the background.
    """

    def __init__(self, sources: Sources, add: Add, every: float, then: Callable[[], object] = lambda: None) -> None:
        self._sources, self._add, self._every, self._then = sources, add, every, then
        self._changes = Changes(add)
        self._begin()
        _living.add(self)

    def _begin(self) -> None:
        self.lock, self._stopped = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read in the background."""
        self._thread = threading.Thread(target=self._run, name="batchlimit-telemetry", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Tell of what has changed since the last look."""
        with self.lock:
            for series, value in self._sources.read().items():
                self._changes.tell(series, value)

    def stop(self) -> None:
        """Look once more, and then never again."""
        if not self._stopped.is_set():
            self._stopped.set()
            self.look()

    def _run(self) -> None:
        stopped = self._stopped
        while not stopped.wait(self._every) and self._sources:
            self.look()
            self._then()

    def after_fork(self) -> None:
        """Go on in a forked child, if it was not ended before."""
        if self._stopped.is_set():
            return
        is_running = self._thread is not None
        self._begin()
        self._changes = Changes(self._add, self._sources.read())
        if is_running:
            self.start()


_living = Forkables[Deltas]()
_paused = threading.local()
"""Those that this thread has paused, to fork: another thread may fork at the same time."""


def _before_fork() -> None:
    """Wait for the looks: prometheus-client has one lock for all counters, and in a child it would stay locked."""
    _paused.deltas = []
    for deltas in _living:
        if deltas.lock.acquire(timeout=_PATIENCE):
            _paused.deltas.append(deltas)


def _after_in_parent() -> None:
    while _paused.deltas:
        _paused.deltas.pop().lock.release()


@atexit.register
def _at_exit() -> None:
    for deltas in _living:
        deltas.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent)

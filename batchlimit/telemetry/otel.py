"""Metrics for OpenTelemetry: observable instruments, read when the SDK collects."""

from collections.abc import Iterable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from batchlimit.base.lazy import needed

with needed(__name__, "otel", "opentelemetry-api", name="opentelemetry"):
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider

import batchlimit
from batchlimit.base.histogram import BOUNDS, Histogram
from batchlimit.base.setting import of_kind
from batchlimit.telemetry.metrics import METRICS, Metric
from batchlimit.telemetry.reading import Changes, Reading, Series, Sources

__all__ = ["export"]


def export(*sources: Any, name: str = "", meter_provider: MeterProvider | None = None) -> None:
    """Let OpenTelemetry see limiters and web fronts, until nobody else has them any more.

    They are read when the SDK collects; calls pay nothing. Each worker process calls this, after a fork.

    Args:
        *sources: limiters, and web fronts such as the middleware; each has `statistics()`.
        name: the value of their attribute "limiter" (default "").
        meter_provider: what makes the meter (default None: the global one).

    Raises:
        TypeError: a source has no `statistics`.

    Example:
        >>> from opentelemetry.sdk.metrics import MeterProvider
        >>> from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        >>> from batchlimit import RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", "2/hour")
        >>> reader = InMemoryMetricReader()
        >>> export(limiter, name="api", meter_provider=MeterProvider([reader]))
        >>> limiter.try_acquire("ann")
        True
        >>> found = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        >>> [metric.name for metric in found][:2]
        ['batchlimit.tokens', 'batchlimit.keys']
    """
    of_kind("meter_provider", meter_provider, MeterProvider | None, "a MeterProvider")
    provider = meter_provider or get_meter_provider()
    # Sources that were exported before the global provider was set have their instruments there since then.
    known = [
        read for each, read in _exported.items() if provider in (each, getattr(each, "_real_meter_provider", None))
    ]
    found = known[0] if known else Sources()
    found.add(name, *sources)
    if known:
        return
    _exported[provider] = found
    meter = provider.get_meter("batchlimit", batchlimit.__version__)
    make = partial(meter.create_histogram, explicit_bucket_boundaries_advisory=BOUNDS)
    histograms = {each: make(each.name, each.unit, each.text) for each in METRICS if each.kind == "histogram"}
    readings = _Readings(found, histograms)
    kinds = {"counter": meter.create_observable_counter, "gauge": meter.create_observable_up_down_counter}
    for metric in METRICS:
        if metric.kind in kinds:
            kinds[metric.kind](metric.name, [partial(readings.of, metric)], metric.unit, metric.text)


_exported: WeakKeyDictionary[MeterProvider, Sources] = WeakKeyDictionary()
"""What the instruments of each provider read: it makes them once, and would ignore those of a second export."""


class _Readings:
    """One reading for all instruments of a collection: it begins anew with the first that is asked again."""

    def __init__(self, sources: Sources, histograms: dict[Metric, Any]) -> None:
        self._sources = sources
        self._changes = Changes(lambda series, seconds: histograms[series.metric].record(seconds, _attributes(series)))
        self._reading: Reading = {}
        self._asked: set[Metric] = set(METRICS)

    def of(self, metric: Metric, _options: CallbackOptions) -> Iterable[Observation]:
        """Return what one instrument tells."""
        if metric in self._asked:
            self._reading, self._asked = self._sources.read(), set()
            for series, value in self._reading.items():
                if isinstance(value, Histogram):
                    self._changes.tell(series, value)
        self._asked.add(metric)
        return [
            Observation(value, _attributes(series))
            for series, value in self._reading.items()
            if series.metric is metric and not isinstance(value, Histogram)
        ]


def _attributes(series: Series) -> dict[str, str]:
    return dict(zip(("limiter", *series.metric.labels), series.values, strict=True))

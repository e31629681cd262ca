"""`batchlimit exporter`: what the store knows of a fleet, for Prometheus."""

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import translate
from typing import Annotated, Any

import typer

from batchlimit.admin import Admin
from batchlimit.base.key import check_key, stored
from batchlimit.cli.options import DEFAULT_PREFIX, Prefix, Url
from batchlimit.cli.output import lost, opened, say
from batchlimit.cli.top.board import BucketSample, sampled
from batchlimit.cli.top.sampler import BUDGET, Sampler
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.overrides.override import is_pattern

Watch = Annotated[
    list[str] | None, typer.Option("--watch", "-w", help="A key, or a pattern of keys; it is a label. Repeat it.")
]
_COUNTERS = {"used": "used", "refused": "refused", "shadow": "shadow_refused"}
"""Fields of a Sample that are counted, and what the metrics call them."""
_KINDS = {"enforce": "quota", "open": "open", "shadow": "shadow"}
"""What the metrics call an override, by its mode."""
Metric = tuple[str, str, str, Mapping[str, float]]
"""The name of a metric, what it says, its label ("": it has none), and its values by that."""


def exporter(
    url: Url,
    watch: Watch = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = 9835,
    budget: Annotated[float, typer.Option(min=0.5, max=500.0, help="Milliseconds of a server for patterns.")] = BUDGET,
    once: Annotated[bool, typer.Option("--once", help="Print the metrics once, and end.")] = False,
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Serve what the store knows of the fleet to Prometheus, at /metrics, until Ctrl-C."""
    with opened(url, prefix) as admin:
        try:
            from prometheus_client import CollectorRegistry, generate_latest, start_http_server
        except ModuleNotFoundError as error:
            extra = "pip install 'batchlimit[cli,prometheus]'"
            raise ValueError(f"the exporter needs prometheus-client, of the 'prometheus' extra: {extra}") from error
        registry: Any = CollectorRegistry()
        registry.register(FleetCollector(admin, prefix, watch or (), budget))
        if once:
            sys.stdout.write(generate_latest(registry).decode())
            return
        place = f"[{host}]" if ":" in host else host
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ValueError(f"cannot listen at {place}:{port}: {error.strerror}") from error
        say(f"batchlimit exporter: http://{place}:{server.server_port}/metrics")
        try:
            thread.join()
        except KeyboardInterrupt:
            server.shutdown()
            sys.exit(130)


class WatchedBuckets:
    """The buckets of one key, or of all keys that match a pattern, as they were last seen."""

    def __init__(self) -> None:
        self.samples: dict[str, BucketSample] = {}
        self.counts = dict.fromkeys(_COUNTERS, 0)

    def learn(self, samples: Iterable[BucketSample]) -> None:
        """See all of its buckets at once; add up what was used since the last time, also of buckets that are gone."""
        last, self.samples = self.samples, {sample.key: sample for sample in samples}
        for key, sample in self.samples.items():
            before = last.get(key)
            is_same = before is not None and before.epoch == sample.epoch
            for name in _COUNTERS:
                then = getattr(before, name) if is_same else 0
                self.counts[name] += max(0, getattr(sample, name) - then)


class FleetCollector:
    """Looks at the store once a scrape, for patterns with SCAN within a budget: they are as of its last full round."""

    def __init__(self, admin: Admin, prefix: str, watch: Iterable[str], budget: float) -> None:
        self._admin, self._prefix, self._budget, self._lock = admin, prefix, budget, threading.Lock()
        self._watched = {check_key(name): WatchedBuckets() for name in watch}
        self._patterns = {name: re.compile(translate(name)).match for name in self._watched if is_pattern(name)}
        self._sampler: Sampler | None = None
        self._round: dict[str, BucketSample] = {}

    def collect(self) -> Iterator[Any]:
        """Look, and return what is there; while the store does not answer, that alone."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        with self._lock:
            try:
                found = [*self._rules(), *self._buckets()]
            except StoreUnavailable as error:
                say(f"batchlimit exporter: {error}")
                found = []
            for name, text, label, values in [
                ("up", "1 if the store answered this scrape.", "", {"": bool(found)}),
                *found,
            ]:
                kind = CounterMetricFamily if name in _COUNTERS.values() else GaugeMetricFamily
                family = kind(f"batchlimit_fleet_{name}", text, labels=[label] if label else [])
                for which, value in values.items():
                    family.add_metric([which] if label else [], value)
                yield family

    def _rules(self) -> Iterator[Metric]:
        overrides, now = self._admin.overrides(), self._admin.clock()
        counts = {"quota": 0, "hold": 0, "open": 0, "shadow": 0, "lost": len(lost(self._admin.store, overrides))}
        for there in overrides:
            if (each := there.counting(now)) is not None:
                counts["hold" if each.is_hold else _KINDS[each.mode]] += 1
        yield "rules_revision", "The revision of the overrides.", "", {"": overrides.revision}
        yield "overrides", "Overrides that count now, by what they say.", "kind", counts

    def _buckets(self) -> Iterator[Metric]:
        self._look()
        for metric, text, value in _GAUGES:
            yield metric, text, "watch", {name: value(each.samples.values()) for name, each in self._watched.items()}
        for field, metric in _COUNTERS.items():
            text = f"Tokens {metric.replace('shadow_', 'that a shadow would have ')} since the exporter began to watch."
            yield metric, text, "watch", {name: each.counts[field] for name, each in self._watched.items()}

    def _look(self) -> None:
        for key, watched in self._watched.items():
            if key not in self._patterns:
                fields, now = self._admin.store.rules.bucket(stored(key))
                watched.learn(filter(None, [sampled(key, fields, now)]))
        if not self._patterns:
            return
        self._sampler = self._sampler or Sampler(self._admin.store, self._prefix, self._budget)
        look = self._sampler.look()
        self._round |= {sample.key: sample for sample in look.samples}
        if look.cost.part < 1.0:
            return
        for name, matches in self._patterns.items():
            self._watched[name].learn(each for each in self._round.values() if matches(each.key))
        self._round = {}


_GAUGES: tuple[tuple[str, str, Callable[[Iterable[BucketSample]], float]], ...] = (
    ("buckets", "Buckets that are not full.", lambda seen: len(list(seen))),
    (
        "level",
        "The share of the burst that is in the bucket, 0 to 1; of several the lowest.",
        lambda seen: min((each.level for each in seen), default=1.0),
    ),
    ("outstanding", "Tokens that instances hold.", lambda seen: sum(each.held for each in seen)),
    (
        "instances",
        "Limiter instances that asked for a key within a second; of several keys the most.",
        lambda seen: max((each.instances for each in seen), default=0),
    ),
)

"""What OpenTelemetry sees: through the SDK's reader in memory, and at a receiver that speaks OTLP."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.metrics._internal import _ProxyMeterProvider
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from batchlimit import AsyncRateLimiter, ConcurrencyLimiter, RateLimited, RateLimiter
from batchlimit.base.histogram import BOUNDS
from batchlimit.laws import Fixed
from batchlimit.telemetry import otel
from batchlimit.telemetry.otel import export
from batchlimit.telemetry.traces import trace
from tests.depth import depth
from tests.integrations.worker_commands import working
from tests.servers import Server
from tests.sync.stage import until

Points = dict[tuple[str, ...], float]


def points(reader: InMemoryMetricReader) -> Points:
    """The value of each series, by the name of its metric and the values of its attributes."""
    found: Any = reader.get_metrics_data()
    metrics = found.resource_metrics[0].scope_metrics[0].metrics
    return {
        (metric.name, *map(str, dict(point.attributes).values())): getattr(point, "count", None) or point.value
        for metric in metrics
        for point in metric.data.data_points
    }


def total(found: Points, metric: str, *wanted: str) -> float:
    """The sum of the series of a metric that have these labels."""
    series = dict(found)  # a receiver may be told meanwhile
    return sum(value for (name, *labels), value in series.items() if name == metric and {*wanted} <= {*labels})


def tokens(found: Points, result: str) -> float:
    return total(found, "batchlimit.tokens", result)


def test_each_collection_is_one_reading() -> None:
    reader = InMemoryMetricReader()
    with RateLimiter.from_url("memory://", "2/hour") as limiter, ConcurrencyLimiter(Fixed(7)) as calls:
        export(limiter, calls, name="api", meter_provider=MeterProvider([reader]))
        for expected in (1, 2):
            limiter.try_acquire("ann")
            assert tokens(points(reader), "acquired") == expected
        limiter.try_acquire("ann")
        seen = points(reader)
        assert tokens(seen, "refused") == 1
        assert seen["batchlimit.concurrency.limit", "api", ""] == 7
        assert seen["batchlimit.store.available", "api"] == 1
        assert seen["batchlimit.store.duration", "api"] == seen["batchlimit.store.operations", "api"]


def test_what_is_exported_later_is_seen_too_and_a_source_twice_counts_once() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with RateLimiter.from_url("memory://", "9/hour") as one, RateLimiter.from_url("memory://", "9/hour") as other:
        for name, each in (("one", one), ("other", other), ("other", other)):
            export(each, name=name, meter_provider=provider)
        one.try_acquire("ann")
        other.try_acquire("bob")
        found = points(reader)
    assert total(found, "batchlimit.keys", "one") == total(found, "batchlimit.keys", "other") == 1
    assert total(found, "batchlimit.store.duration", "other") == 1


def test_what_is_exported_before_and_after_the_global_provider_is_set_is_seen_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader, proxy = InMemoryMetricReader(), _ProxyMeterProvider()
    real = MeterProvider([reader])
    with RateLimiter.from_url("memory://", "9/hour") as one, RateLimiter.from_url("memory://", "9/hour") as other:
        monkeypatch.setattr(otel, "get_meter_provider", lambda: proxy)
        export(one, name="one")
        proxy.on_set_meter_provider(real)
        monkeypatch.setattr(otel, "get_meter_provider", lambda: real)
        export(other, name="other")
        one.try_acquire("ann")
        other.try_acquire("bob")
        found = points(reader)
    assert total(found, "batchlimit.keys", "one") == total(found, "batchlimit.keys", "other") == 1
    assert not caplog.records, "an instrument was made twice"


def test_durations_are_histograms_with_the_buckets_of_the_limiter() -> None:
    reader = InMemoryMetricReader()
    with RateLimiter.from_url("memory://", "2/hour") as limiter:
        export(limiter, name="api", meter_provider=MeterProvider([reader]))
        for _ in range(2):
            limiter.try_acquire("ann")
            found: Any = reader.get_metrics_data()
            metrics = {each.name: each for each in found.resource_metrics[0].scope_metrics[0].metrics}
            told, counted = metrics["batchlimit.store.duration"], limiter.statistics().durations
            (point,) = told.data.data_points
            assert (told.unit, metrics["batchlimit.tokens"].unit) == ("s", "{token}")
            assert tuple(point.explicit_bounds) == BOUNDS
            assert tuple(point.bucket_counts) == counted.counts
            assert point.sum == pytest.approx(sum(counted.seconds))


class Receiver(MetricsServiceServicer):
    """Keeps what it is sent, by process."""

    def __init__(self) -> None:
        self.points: Points = {}

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  the protocol's name
        found = request.resource_metrics[0]
        process = next(
            (each.value.string_value for each in found.resource.attributes if each.key == "service.instance.id"), ""
        )
        for scope in found.scope_metrics:
            for metric in scope.metrics:
                for point in metric.sum.data_points:
                    labels = [each.value.string_value for each in point.attributes]
                    self.points[metric.name, *sorted(labels), process] = point.as_int
        return ExportMetricsServiceResponse()


@contextmanager
def receiving() -> Iterator[tuple[Receiver, str]]:
    """A server that speaks OTLP, and its address."""
    receiver, server = Receiver(), grpc.server(ThreadPoolExecutor(1))
    add_MetricsServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield receiver, f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_a_receiver_is_told_by_all_workers_what_their_clients_counted(valkey: Server, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    command = ["uvicorn", "--workers", depth("2", "4"), "--fd", "{fd}", "--log-level", "error"]
    command += ["tests.telemetry.otlp_app:app"]
    with (
        receiving() as (receiver, address),
        working(command, tmp_path, REDIS_URL=valkey.url, OTLP_RECEIVER=address) as crew,
    ):
        counted = Counter(status for _ in range(30) for status in crew.session("/search", 10))

        def told(result: str) -> float:
            return total(receiver.points, "batchlimit.requests", "search", result)

        until(lambda: (told("acquired"), told("refused")) == (counted[200], counted[429]))
    assert counted.total() == 300
    assert counted[429] > 0


# Spans hear of calls that wait or are refused, of limiters that are traced, and never of a key


TRACER = TracerProvider().get_tracer("tests")
HOURLY = "2/hour"
SOON = "50/s burst 1"


def names(span: Any) -> list[str]:
    return [event.name.removeprefix("batchlimit.") for event in span.events]


def test_a_refusal_is_an_event_and_an_admission_is_none() -> None:
    with RateLimiter.from_url("memory://", HOURLY) as limiter, TRACER.start_as_current_span("work") as span:
        trace(limiter, name="api", longer_than=60)
        assert [limiter.try_acquire("secret") for _ in range(3)] == [True, True, False]
        with pytest.raises(RateLimited):
            limiter.acquire("secret", timeout=0)
        assert names(span) == ["refused", "refused"]
        told: Any = [dict(event.attributes or {}) for event in span.events]  # type: ignore[attr-defined]
    assert told[0] == {"batchlimit.limiter": "api", "batchlimit.error": ""}
    assert told[1]["batchlimit.error"] == "RateLimited"
    assert told[1]["batchlimit.retry_after"] > 1000
    assert "secret" not in str(told)


def test_a_wait_is_an_event_with_its_seconds() -> None:
    with RateLimiter.from_url("memory://", SOON) as limiter, TRACER.start_as_current_span("work") as span:
        trace(limiter)
        limiter.acquire_all({"ann": 1})
        before = len(names(span))

        def has_waited() -> bool:
            """Where the machine stalled there was a token again."""
            limiter.acquire("ann")
            return names(span)[before:] == ["waited"]

        until(has_waited)
        told: Any = span.events[-1].attributes  # type: ignore[attr-defined]
        assert told["batchlimit.seconds"] > 0.001


def test_tasks_are_traced_alike() -> None:
    async def work() -> list[str]:
        async with AsyncRateLimiter.from_url("memory://", HOURLY) as limiter:
            trace(limiter, longer_than=60)
            with TRACER.start_as_current_span("work") as span:
                assert [await limiter.try_acquire("ann") for _ in range(3)] == [True, True, False]
                with pytest.raises(RateLimited):
                    await limiter.acquire("ann", timeout=0)
                with pytest.raises(RateLimited):
                    await limiter.acquire_all({"ann": 1}, timeout=0)
                return names(span)

    assert asyncio.run(work()) == ["refused"] * 3


def test_other_limiters_are_not_traced() -> None:
    with RateLimiter.from_url("memory://", HOURLY) as one, RateLimiter.from_url("memory://", HOURLY) as other:
        trace(one)
        assert "try_acquire" not in vars(other)


def test_what_is_no_rate_limiter_cannot_be_traced() -> None:
    with pytest.raises(TypeError, match="cannot be traced"):
        trace(3)

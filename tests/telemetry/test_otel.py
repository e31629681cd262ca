"""What OpenTelemetry sees: through the SDK's reader in memory, and at a receiver that speaks OTLP."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader

from batchlimit import ConcurrencyLimiter, RateLimiter
from batchlimit.laws import Fixed
from batchlimit.telemetry.otel import export

Points = dict[tuple[str, ...], float]


def points(reader: InMemoryMetricReader) -> Points:
    """The value of each series, by the name of its metric and the values of its attributes."""
    found: Any = reader.get_metrics_data()
    metrics = found.resource_metrics[0].scope_metrics[0].metrics
    return {
        (metric.name, *map(str, dict(point.attributes).values())): point.value
        for metric in metrics
        for point in metric.data.data_points
    }


def tokens(found: Points, result: str) -> float:
    """Of any source."""
    return sum(value for (name, *labels), value in found.items() if name == "batchlimit.tokens" and result in labels)


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


class Receiver(MetricsServiceServicer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.points: Points = {}
        self.units: dict[str, str] = {}

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  the protocol's name
        for scope in request.resource_metrics[0].scope_metrics:
            for metric in scope.metrics:
                self.units[metric.name] = metric.unit
                for point in metric.sum.data_points:
                    labels = [each.value.string_value for each in point.attributes]
                    self.points[metric.name, *sorted(labels)] = point.as_int
        return ExportMetricsServiceResponse()


def test_a_receiver_that_speaks_otlp_gets_the_same_totals() -> None:
    receiver, server = Receiver(), grpc.server(ThreadPoolExecutor(1))
    add_MetricsServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"127.0.0.1:{port}", insecure=True), 1e9)
    provider = MeterProvider([reader])
    try:
        with RateLimiter.from_url("memory://", "30/hour") as limiter:
            export(limiter, name="api", meter_provider=provider)
            admitted = sum(limiter.try_acquire("ann") for _ in range(50))
            assert provider.force_flush()
        assert tokens(receiver.points, "acquired") == admitted == 30
        assert tokens(receiver.points, "refused") == 20
        assert receiver.units["batchlimit.tokens"] == "{token}"
    finally:
        provider.shutdown()
        server.stop(None).wait()

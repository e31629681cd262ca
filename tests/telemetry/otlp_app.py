"""The example with metrics, each of whose workers tells the receiver at OTLP_RECEIVER, ten times a second."""

import os

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from batchlimit.telemetry.otel import export
from examples.fastapi_metrics import app as app
from examples.fastapi_metrics import limits

sender = OTLPMetricExporter(os.environ["OTLP_RECEIVER"], insecure=True)
worker = Resource({"service.instance.id": str(os.getpid())})
provider = MeterProvider([PeriodicExportingMetricReader(sender, 100)], worker)
export(limits, name="api", meter_provider=provider)

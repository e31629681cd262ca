"""The page about monitoring is true: its metrics are those that there are, and a missing library names its extra."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from batchlimit.telemetry.metrics import METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "monitoring.md").read_text(encoding="utf-8")


def test_the_page_has_every_metric_with_its_kind_and_labels() -> None:
    rows = re.findall(r"^\| `(batchlimit\.[\w.]+)` \| (\w+) \| ([\w, ]*)\| ", PAGE, re.MULTILINE)
    assert [(name, kind, tuple(labels.replace(",", "").split())) for name, kind, labels in rows] == [
        (metric.name, metric.kind, metric.labels) for metric in METRICS
    ]


def test_the_expressions_name_metrics_that_there_are() -> None:
    ends = {"counter": "_total", "gauge": "", "histogram": "_bucket"}
    names = {metric.prometheus_name + ends[metric.kind] for metric in METRICS}
    asked = set(re.findall(r"batchlimit_\w+", PAGE.split("## What to ask")[1]))
    assert asked
    assert asked <= names


def test_the_page_has_every_alert() -> None:
    alerts = (Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(Batchlimit\w+)` \|", PAGE, re.MULTILINE) == re.findall(r"alert: (\w+)", alerts)


@pytest.mark.parametrize(
    ("module", "imported", "package", "extra"),
    [
        ("prometheus", "prometheus_client", "prometheus-client", "prometheus"),
        ("otel", "opentelemetry.metrics", "opentelemetry-api", "otel"),
    ],
)
def test_a_missing_library_names_its_extra(module: str, imported: str, package: str, extra: str) -> None:
    without = f"import sys; sys.modules[{imported!r}] = None; import batchlimit.telemetry.{module}"
    found = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert f"needs {package}, of the {extra!r} extra: pip install 'batchlimit[{extra}]'" in found.stderr

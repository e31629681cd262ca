"""The dashboard and the alerts of deploy/, held against a real Prometheus that scrapes a fleet under load.

That each alert fires by a real fault is tested in tests/chaos/alerts.
"""

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, start_http_server

from batchlimit import RateLimiter
from batchlimit.telemetry.metrics import METRICS
from batchlimit.telemetry.prometheus import export
from benchmarks.prometheus import Prometheus, prometheus
from tests.chaos.alerts.service import FLOOD, NAMELESS, SLOW, STRANGERS
from tests.chaos.alerts.town import town
from tests.depth import only_deep
from tests.programs import program
from tests.sync.stage import until

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "batchlimit.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
PANELS = {panel["title"]: panel["targets"][0]["expr"] for panel in DASHBOARD["panels"]}


@pytest.mark.parametrize("command", [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]])
def test_promtool_agrees_with_the_alerts(command: list[str]) -> None:
    found = subprocess.run(
        [program("promtool"), *command], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_alert_has_a_test() -> None:
    tested = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yaml").read_text(encoding="utf-8"))["tests"]
    fired = {rule["alertname"] for each in tested for rule in each["alert_rule_test"] if rule.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in ALERTS}


@pytest.fixture(scope="module")
def fleet() -> Iterator[Prometheus]:
    """A Prometheus that scrapes a fleet in which everything goes wrong that may, and the exporter."""
    with town() as found:
        found.go_wrong(FLOOD, STRANGERS, NAMELESS, SLOW)
        yield found.prometheus


def test_every_panel_has_data(fleet: Prometheus) -> None:
    def without_data() -> list[str]:
        return [
            title for title, each in PANELS.items() if not any(value(one) >= 0 for one in fleet.answer(plain(each)))
        ]

    with suppress(AssertionError):
        until(lambda: not without_data())
    assert without_data() == []


def plain(expression: str) -> str:
    """An expression without the variables of Grafana."""
    return expression.replace("$limiter", "api|pool").replace("$__rate_interval", "1m")


def value(series: Any) -> float:
    """The value of a series now; -1 where there is none, as of a quantile of nothing."""
    return -1.0 if math.isnan(found := float(series["value"][1])) else found


@only_deep
def test_what_prometheus_has_is_what_was_counted() -> None:
    registry, tokens = CollectorRegistry(), "sum by (policy, result) (batchlimit_tokens_total)"
    program("prometheus")  # before a server is started that would go on
    with RateLimiter.from_url("memory://", "100/s") as limiter:
        export(limiter, name="api", registry=registry)
        limiter.acquire("ann", 100)
        limiter.acquire("ann")
        server, thread = start_http_server(0, "127.0.0.1", registry)
        with prometheus({"api": server.server_port}) as watching:
            until(lambda: bool(watching.answer(tokens)))
            found = {
                (each["metric"]["policy"], each["metric"]["result"]): value(each) for each in watching.answer(tokens)
            }
        server.shutdown()
        server.server_close()
        thread.join()
    assert found == {("*", "acquired"): 101, ("*", "refused"): 0, ("*", "timed_out"): 0}


# The page about monitoring is true: its metrics are those that there are, and a missing library names its extra


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

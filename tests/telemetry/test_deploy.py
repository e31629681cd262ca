"""The dashboard and the alerts of deploy/, held against a real Prometheus that scrapes limiters under load."""

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, start_http_server

from batchlimit import ConcurrencyLimited, ConcurrencyLimiter, Queue, RateLimiter
from batchlimit.integrations.counters import EnforcementStatistics, RuleCounts
from batchlimit.laws import Fixed
from batchlimit.telemetry.prometheus import export
from tests.sync.stage import until

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "batchlimit.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
PANELS = {panel["title"]: panel["targets"][0]["expr"] for panel in DASHBOARD["panels"]}

needs_prometheus = pytest.mark.skipif(not shutil.which("prometheus"), reason="there is no Prometheus here")


@needs_prometheus
@pytest.mark.parametrize("command", [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]])
def test_promtool_agrees_with_the_alerts(command: list[str]) -> None:
    found = subprocess.run(
        ["promtool", *command], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_alert_has_a_test() -> None:
    tested = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yaml").read_text(encoding="utf-8"))["tests"]
    fired = {rule["alertname"] for each in tested for rule in each["alert_rule_test"] if rule.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in ALERTS}


class Web:
    """What a web front counted; each look finds more."""

    def __init__(self) -> None:
        self._looks = 0

    def statistics(self) -> EnforcementStatistics:
        self._looks += 1
        counts = RuleCounts(*(self._looks * share for share in (9, 5, 1, 1, 1, 1)))
        return EnforcementStatistics(10 * self._looks, self._looks, {"login": counts})


class Prometheus:
    """A server that scrapes one target each second."""

    def __init__(self, url: str) -> None:
        self._url = url

    def answer(self, expression: str) -> Any:
        """The result of an expression; None while the server is not there yet."""
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/query?{query}", timeout=10) as reply:
                return json.load(reply)["data"]["result"]
        except OSError:
            return None


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    registry = CollectorRegistry()
    with RateLimiter.from_url("memory://", "100/s") as limiter, _calls() as calls:
        web = Web()
        export(limiter, calls, web, name="api", registry=registry)
        limiter.acquire("ann", 100)
        limiter.acquire("ann")
        with calls.acquire(), pytest.raises(ConcurrencyLimited):
            calls.acquire()
        served, thread = start_http_server(0, "127.0.0.1", registry)
        port = free_port()
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [
                {"job_name": "api", "static_configs": [{"targets": [f"127.0.0.1:{served.server_port}"]}]}
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield Prometheus(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait()
            served.shutdown()
            served.server_close()
            thread.join()


def _calls() -> ConcurrencyLimiter:
    return ConcurrencyLimiter(Fixed(1), queue=Queue(1, max_wait=0.001))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@needs_prometheus
@pytest.mark.parametrize("title", PANELS)
def test_every_panel_has_data(prometheus: Prometheus, title: str) -> None:
    expression = PANELS[title].replace("$limiter", "api").replace("$__rate_interval", "1m")
    until(lambda: bool(prometheus.answer(expression)))


@needs_prometheus
def test_what_prometheus_has_is_what_was_counted(prometheus: Prometheus) -> None:
    tokens = "sum by (policy, result) (batchlimit_tokens_total)"
    until(lambda: bool(prometheus.answer(tokens)))
    found = {
        (each["metric"]["policy"], each["metric"]["result"]): each["value"][1] for each in prometheus.answer(tokens)
    }
    assert found == {("*", "acquired"): "101", ("*", "refused"): "0", ("*", "timed_out"): "0"}

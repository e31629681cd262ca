"""Draws what the panels of the dashboard show: a minute of load with an outage of the store, scraped by a Prometheus.

    python -m benchmarks.dashboard [--seconds 60] [--out docs/how-to/dashboard.svg]

It needs `prometheus` in the PATH. The store is away in the middle fifth of the time; all else is on loopback.
"""

import argparse
import json
import random
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from prometheus_client import CollectorRegistry, start_http_server

from batchlimit import BatchLimitError, ConcurrencyLimiter, FailurePolicy, Queue, RateLimiter
from batchlimit.integrations.wsgi import RateLimitMiddleware
from batchlimit.laws import AIMD
from batchlimit.rules import Rule, Rules
from batchlimit.stores import MemoryStore
from batchlimit.telemetry.prometheus import export
from batchlimit.testing import FaultStore

ROOT = Path(__file__).parents[1]
PANELS = json.loads((ROOT / "deploy" / "grafana" / "batchlimit.json").read_text(encoding="utf-8"))["panels"]
RULES = Rules(
    [
        Rule("login", "3/s", key="login:{user}", match="POST /login"),
        Rule("search", "40/s", key="search:{user}", match="/search"),
    ]
)
_COLUMNS = 3
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#777777")


class Load:
    """Threads that call, until they are stopped."""

    def __init__(self) -> None:
        self.store = FaultStore(MemoryStore, slow=0.002)
        self.limiter = RateLimiter(
            self.store, {**RULES.quotas, "export": "20/s"}, on_failure=FailurePolicy.local(instances=1)
        )
        web: Any = RateLimitMiddleware(
            lambda _environ, start: (start("200 OK", []) and []) or [],
            self.limiter,
            RULES,
            identify=lambda environ: {"user": environ["USER"]},
            checks=False,
        )
        self.web = web
        self.calls = ConcurrencyLimiter(AIMD(initial=4, minimum=2, maximum=7), queue=Queue(10, max_wait=0.05))
        self._stopped, self._random = threading.Event(), random.Random(7)
        work: list[Callable[[], None]] = [self._request] * 3 + [self._export] * 2 + [self._call] * 8
        self._threads = [threading.Thread(target=self._repeat, args=(each,), daemon=True) for each in work]

    def __enter__(self) -> "Load":
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        for each in self._threads:
            each.join()
        self.limiter.close()
        self.calls.close()

    def _repeat(self, work: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            work()

    def _request(self) -> None:
        path = self._random.choices(("/search", "/login", "/about"), (80, 15, 5))[0]
        method = "POST" if path == "/login" else "GET"
        environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "USER": self._random.choice("abc")}
        answer = self.web(environ, lambda *_head: None)
        if hasattr(answer, "close"):
            answer.close()
        self._stopped.wait(0.005)

    def _export(self) -> None:
        with suppress(BatchLimitError):
            self.limiter.acquire("export", self._random.choice((1, 5)), timeout=1)

    def _call(self) -> None:
        try:
            with self.calls.acquire() as permit:
                self._stopped.wait(self._random.expovariate(50))
                if self._random.random() < 0.01:
                    permit.drop()
        except BatchLimitError:
            self._stopped.wait(0.02)


@contextmanager
def prometheus(target: int) -> Iterator[str]:
    """Run a Prometheus that scrapes this port each second; yield its URL."""
    with tempfile.TemporaryDirectory() as folder:
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]
        jobs = [{"job_name": "api", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}]
        config = Path(folder) / "prometheus.yml"
        config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}), encoding="utf-8")
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
        address = f"--web.listen-address=127.0.0.1:{port}"
        with subprocess.Popen([*command, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()


def asked(url: str, expression: str, start: float, end: float) -> list[Any]:
    """Return the series of an expression, second by second."""
    plain = expression.replace("$limiter", ".*").replace("$__rate_interval", "5s")
    query = urllib.parse.urlencode({"query": plain, "start": start, "end": end, "step": 1})
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{query}", timeout=30) as reply:
        return list(json.load(reply)["data"]["result"])


def measured(seconds: float) -> dict[str, list[Any]]:
    """Put load on limiters for so long; return the series of each panel by its title."""
    with ExitStack() as stack:
        load, registry = stack.enter_context(Load()), CollectorRegistry()
        export(load.limiter, load.web, load.calls, name="api", registry=registry)
        server, _ = start_http_server(0, "127.0.0.1", registry)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        url, began = stack.enter_context(prometheus(server.server_port)), time.time()
        for part, down in ((0.4, False), (0.2, True), (0.4, False)):
            load.store.down = down
            time.sleep(part * seconds)
        return {panel["title"]: asked(url, panel["targets"][0]["expr"], began + 5, began + seconds) for panel in PANELS}


def draw(path: Path, series: dict[str, list[Any]]) -> None:
    """Write the drawing: a small one for each panel."""
    rows = -(-len(series) // _COLUMNS)
    with mpl.rc_context({"svg.hashsalt": "batchlimit", "svg.fonttype": "none", "font.size": 7}):
        figure = Figure(figsize=(10, 1.75 * rows), layout="constrained")
        for number, (title, found) in enumerate(series.items(), start=1):
            axes = figure.add_subplot(rows, _COLUMNS, number)
            first = min((float(each["values"][0][0]) for each in found), default=0.0)
            for colour, each in zip(_COLOURS, found, strict=False):
                at, values = zip(*((float(at) - first, float(value)) for at, value in each["values"]), strict=True)
                axes.plot(at, values, color=colour, linewidth=1, label=" ".join(filter(None, each["metric"].values())))
            axes.set_title(title, fontsize=8)
            axes.set_ylim(0, 1.4 * max(axes.get_ylim()[1], 1e-9))
            axes.grid(visible=True, color="#eeeeee")
            if any(each["metric"] for each in found):
                axes.legend(frameon=False, fontsize=5.5, ncols=2, loc="upper left")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, action="append", default=[])
    chosen = parser.parse_args()
    series = measured(chosen.seconds)
    for path in chosen.out or [ROOT / "docs" / "how-to" / "dashboard.svg"]:
        draw(path, series)
    empty = [title for title, found in series.items() if not found]
    print(f"{len(series)} panels; without data: {', '.join(empty) or 'none'}")


if __name__ == "__main__":
    main()

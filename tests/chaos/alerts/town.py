"""All that an alert is about, on one machine: a store, a fleet, the exporter, and a Prometheus with our rules."""

import multiprocessing
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Set
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from batchlimit.admin import Admin
from benchmarks.prometheus import Prometheus, prometheus
from tests.chaos.alerts import service
from tests.nodes import Node, node
from tests.programs import program
from tests.relay import Relay
from tests.servers import valkey_binary

RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yaml"
FASTER = 120
"""By this factor all durations of the rules are shorter than those of deploy/: ten minutes are five seconds."""
PROCESSES = 2
_EVERY = "500ms"
_PATIENCE = 120.0
_UNITS = {"s": 1, "m": 60, "h": 3600}
_DURATION = re.compile(r"(?<=\[)(\d+)([smh])(?=\])|(?<=for: )(\d+)([smh])\b")


def faster(rules: str, factor: int = FASTER) -> str:
    """Return alert rules whose ranges and whose `for` are shorter by this factor."""

    def shorter(found: re.Match[str]) -> str:
        number, unit = (each for each in found.groups() if each is not None)
        return f"{int(number) * _UNITS[unit] * 1000 // factor}ms"

    return _DURATION.sub(shorter, rules)


class Town:
    """The parts, for those who make faults in them."""

    def __init__(self, server: Node, relay: Relay, links: list[Connection], watching: Prometheus) -> None:
        self.server, self.relay, self._links, self.prometheus = server, relay, links, watching

    def go_wrong(self, *what: str) -> None:
        """Have this go wrong in each process, and nothing else."""
        for link in self._links:
            link.send(frozenset(what))
        for link in self._links:
            link.recv()

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """An operator."""
        with Admin.from_url(self.server.url) as admin:
            yield admin

    def await_alerts(self, fire: Set[str] = frozenset(), quiet: Set[str] = frozenset()) -> float:
        """Return after how many seconds all of some alerts fire, and none of others."""
        began = time.monotonic()
        while not fire <= (now := self.prometheus.firing()) or quiet & now:
            assert time.monotonic() < began + _PATIENCE, f"after {_PATIENCE:g} s {sorted(now)} fire"
            time.sleep(0.1)
        return time.monotonic() - began

    def await_series(self, expression: str) -> None:
        """Return once there is one."""
        began = time.monotonic()
        while not self.prometheus.answer(expression):
            assert time.monotonic() < began + _PATIENCE, f"after {_PATIENCE:g} s nothing is {expression}"
            time.sleep(0.1)


@contextmanager
def town() -> Iterator[Town]:
    """A fleet of two processes on a Valkey behind a relay, its exporter, and a Prometheus."""
    program("prometheus")  # before all that takes long to start
    with ExitStack() as stack:
        server = stack.enter_context(node(valkey_binary()))
        relay = stack.enter_context(Relay(server.url, 0.0005))
        links = [stack.enter_context(_process(relay.url)) for _ in range(PROCESSES)]
        targets = {f"api-{number}": link.recv() for number, link in enumerate(links)}
        targets["exporter"] = stack.enter_context(_exporter(relay.url))
        rules = faster(RULES.read_text(encoding="utf-8"))
        yield Town(server, relay, links, stack.enter_context(prometheus(targets, rules, _EVERY)))


@contextmanager
def _process(url: str) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=service.serve, args=(theirs, url, PROCESSES), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()  # which is what tells it to stop
        process.join(10.0)
        process.kill()
        process.join()


@contextmanager
def _exporter(url: str) -> Iterator[int]:
    command = [sys.executable, "-m", "batchlimit", "exporter", "--url", url, "--port", "0"]
    watched = ["--watch", service.HOT, "--watch", "search:*"]
    with subprocess.Popen([*command, *watched], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        drain = threading.Thread(target=process.stderr.read)
        drain.start()
        try:
            yield int(said.rsplit(":", 1)[1].split("/")[0])
        finally:
            process.terminate()
            drain.join()

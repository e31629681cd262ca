"""Permits that processes share: never more than N at once, faults included, and how much of N is used.

    python -m benchmarks.shared_permits              the audit of every fault, then the throughput; two minutes
    python -m benchmarks.shared_permits audit        the faults alone
    python -m benchmarks.shared_permits throughput   the throughput alone, beside redis-py's Lock and a ZSET semaphore

Each holder logs when it began and ended to work under its permit; the logs of all processes are replayed. It starts a
redis-server of its own. The exit status is 1 if more than N were held at once where N is promised.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from benchmarks.markdown import percent, table
from benchmarks.permit_log import SECOND, Hold, handovers, longest_gap, most_at_once, read, tokens_grow, used

_ROOT = Path(__file__).parents[1]


@dataclass(slots=True)
class Crew:
    """Processes that run one plan on one server."""

    url: str
    folder: Path
    plan: dict[str, Any]
    workers: list["subprocess.Popen[str]"] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    until: int = 0
    _at_work: int = 0

    def hire(self, count: int) -> None:
        """Start so many processes more."""
        for _ in range(count):
            log = self.folder / f"{len(self.workers)}.log"
            plan = json.dumps({**self.plan, "url": self.url, "log": str(log)})
            command = [sys.executable, "-m", "benchmarks.permit_worker", plan]
            self.workers.append(
                subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )

    def begin(self, seconds: float) -> None:
        """Let all that are hired work for so long, or as long as those before them; they begin together."""
        new = self.workers[self._at_work :]
        for worker in new:
            assert worker.stdout
            worker.stdout.readline()
        self.until = self.until or time.monotonic_ns() + int(seconds * SECOND)
        for worker in new:
            assert worker.stdin
            worker.stdin.write(f"{self.until}\n")
            worker.stdin.flush()
        self._at_work = len(self.workers)

    def kill(self, number: int) -> None:
        """End a process by SIGKILL."""
        worker = self.workers[number]
        worker.kill()
        worker.wait()
        self.ended[number] = time.monotonic_ns()

    def finish(self) -> tuple[list[Hold], int]:
        """Wait for all; return what they logged, and how often they asked the store."""
        asks = 0
        for number, worker in enumerate(self.workers):
            out, _ = worker.communicate(timeout=120)
            if number not in self.ended:
                asks += json.loads(out)["asks"]
        now = time.monotonic_ns()
        holds = [
            hold
            for number in range(len(self.workers))
            if (log := self.folder / f"{number}.log").exists()
            for hold in read(log, self.ended.get(number, now))
        ]
        return holds, asks

    def shares(self) -> tuple[int, int]:
        """Return how many permits the process got that got the fewest, and the one that got the most."""
        counts = [log.read_text().count("S") for log in self.folder.glob("*.log")]
        return min(counts), max(counts)


@contextmanager
def server() -> Iterator[str]:
    """Run a redis-server on a unix socket."""
    binary = shutil.which("redis-server", path="/usr/bin:/usr/local/bin:/opt/homebrew/bin") or "redis-server"
    with tempfile.TemporaryDirectory(prefix="bl-", dir="/tmp") as folder:
        path = f"{folder}/s"
        command = [binary, "--port", "0", "--unixsocket", path, "--save", ""]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not Path(path).exists():
                time.sleep(0.01)
            yield f"unix://{path}"
        finally:
            process.terminate()
            process.wait()


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a crew: its holds and asks, from when to when it was at work, and a round trip meanwhile (s)."""

    holds: list[Hold]
    asks: int
    began: int
    until: int
    trip: float
    shares: tuple[int, int]


def run(url: str, processes: int, seconds: float, fault: Callable[[Crew], None] | None = None, **plan: Any) -> Run:
    """Run a crew on an empty server."""
    redis.Redis.from_url(url).flushall()
    with tempfile.TemporaryDirectory() as folder:
        crew = Crew(url, Path(folder), plan)
        crew.hire(processes)
        crew.begin(seconds)
        until = crew.until
        trips = ping(url) if fault is None else 0.0
        began = time.monotonic_ns() + SECOND // 2
        if fault is not None:
            time.sleep(0.5)
            fault(crew)
        holds, asks = crew.finish()
        return Run(holds, asks, began, until - SECOND // 5, trips, crew.shares())


# Faults


def killed(crew: Crew) -> None:
    crew.kill(0)
    crew.hire(1)
    crew.begin(0.0)


def stopped(crew: Crew) -> None:
    """Two processes stand still for longer than their leases."""
    for worker in crew.workers[:2]:
        os.kill(worker.pid, signal.SIGSTOP)
    time.sleep(1.6)
    for worker in crew.workers[:2]:
        os.kill(worker.pid, signal.SIGCONT)


def asked(*words: Any) -> Callable[[Crew], None]:
    """A command to the server, at a bad time."""

    def ask(crew: Crew) -> None:
        client: Any = redis.Redis.from_url(crew.url)
        client.execute_command(*words)

    return ask


def deaf(crew: Crew) -> None:
    """All subscriptions are cut, again and again: pushes are lost."""
    client: Any = redis.Redis.from_url(crew.url)
    for _ in range(10):
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        time.sleep(0.1)


FAULTS: dict[str, tuple[Callable[[Crew], None] | None, bool]] = {
    "nothing": (None, True),
    "a process is killed and replaced": (killed, True),
    "two processes stop past their leases": (stopped, True),
    "SCRIPT FLUSH": (asked("SCRIPT", "FLUSH"), True),
    "subscriptions are cut": (deaf, True),
    "the server stands still for 0.3 s": (asked("CLIENT", "PAUSE", "300", "ALL"), True),
    "the server stands still past the leases": (asked("CLIENT", "PAUSE", "1500", "ALL"), True),
    "FLUSHALL": (asked("FLUSHALL"), False),
}
"""Each fault, and whether N is promised meanwhile."""


def audit(url: str, names: list[str], seconds: float = 4.0, processes: int = 8, limit: int = 10) -> bool:
    """Print a row for each fault; return whether every promise was kept."""
    rows, kept = [], True
    for name in names:
        fault, promised = FAULTS[name]
        plan: dict[str, Any] = {"limit": limit, "lease": 1.0, "callers": 8, "hold": 0.02}
        found = run(url, processes, seconds, fault, **plan)
        holds, most = found.holds, most_at_once(found.holds)
        kept = kept and (most <= limit or not promised)
        share = percent(used(holds, limit, found.began, found.until), 0)
        rows.append(
            [name, f"{most} of {limit}", str(len(holds)), share, f"{longest_gap(holds, found.began) / 1e6:.0f} ms"]
        )
    print(table(["what happens", "most at once", "permits", "used", "longest time without a new permit"], rows))
    return kept


def ping(url: str) -> float:
    """Return the median round trip (s) of a client that asks now and then, as callers do."""
    client = redis.Redis.from_url(url)
    times = []
    for _ in range(100):
        time.sleep(0.02)
        start = time.perf_counter()
        client.ping()
        times.append(time.perf_counter() - start)
    return sorted(times)[50]


SETTINGS: list[tuple[str, int, dict[str, Any]]] = [
    ("N = 1000, 4 processes, 100 ms", 4, {"kind": "ours, tasks", "limit": 1000, "callers": 400, "hold": 0.1}),
    ("N = 1000, 4 processes, 500 ms", 4, {"kind": "ours, tasks", "limit": 1000, "callers": 400, "hold": 0.5}),
    ("N = 100, 4 processes, 10 ms", 4, {"kind": "ours, tasks", "limit": 100, "callers": 50, "hold": 0.01}),
    ("N = 4, 8 processes, 10 ms", 8, {"kind": "ours", "limit": 4, "callers": 2, "hold": 0.01}),
    ("the same, ZSET, polled every 10 ms", 8, {"kind": "zset", "limit": 4, "callers": 2, "hold": 0.01}),
    ("the same, ZSET, polled every 1 ms", 8, {"kind": "zset", "limit": 4, "callers": 2, "hold": 0.01, "sleep": 0.001}),
    ("N = 1, 4 processes, 10 ms", 4, {"kind": "ours", "limit": 1, "callers": 2, "hold": 0.01}),
    (
        "the same, Lock of redis-py, as it comes",
        4,
        {"kind": "lock", "limit": 1, "callers": 2, "hold": 0.01, "sleep": 0.1},
    ),
    ("the same, Lock, polled every 1 ms", 4, {"kind": "lock", "limit": 1, "callers": 2, "hold": 0.01, "sleep": 0.001}),
]


def throughput(url: str, seconds: float = 5.0) -> None:
    """Print how much of each limit is used, and how fast a slot changes hands."""
    rows = []
    for name, processes, plan in SETTINGS:
        found = run(url, processes, seconds, None, **plan)
        holds, limit = found.holds, plan["limit"]
        gaps = handovers(holds, limit)
        median = gaps[len(gaps) // 2] / 1e6 if gaps else 0.0
        tokens = (
            "" if limit > 1 or plan["kind"] != "ours" else ", tokens grow" if tokens_grow(holds) else ", TOKENS FALL"
        )
        rows.append(
            [
                name,
                f"{most_at_once(holds)}{tokens}",
                str(len(holds)),
                percent(used(holds, limit, found.began, found.until), 1),
                f"{median:.2f} ms",
                f"{found.trip * 1e3:.2f} ms",
                percent(found.asks / len(holds), 1) if found.asks else "-",
                "{} / {}".format(*found.shares),
            ]
        )
    head = ["setting", "most at once", "permits", "used", "handover p50", "round trip", "asks / permit", "by process"]
    print(table(head, rows))


def main(words: list[str]) -> int:
    kept = True
    with server() as url:
        if "throughput" not in words:
            kept = audit(url, list(FAULTS))
        if "audit" not in words:
            throughput(url)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

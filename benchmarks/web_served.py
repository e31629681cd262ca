"""Requests a second of one uvicorn worker, by no limiter and by ours, with the store 1 ms away.

`python -m benchmarks.web_served` needs `wrk` and Linux. The worker answers with FastAPI; rounds of all contenders are
interleaved.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from statistics import median
from typing import Any

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.rules import Rule, Rules
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.distance import distant
from benchmarks.web_rules import FOUR, ONE, PATH, of_scope

_CONTENDERS = {"none": "no limiter", "one": "1 rule", "four": "4 rules", "bare": "4 rules, headers off"}
_MAX_START = 60.0


def none() -> Any:
    from benchmarks.web_asgi import fast

    return fast()


def one() -> Any:
    return _limited(ONE)


def four() -> Any:
    return _limited(FOUR)


def bare() -> Any:
    return _limited(FOUR, headers="off")


def _limited(rules: list[Rule], **options: Any) -> RateLimitMiddleware:
    def limiter() -> AsyncRateLimiter:
        return AsyncRateLimiter.from_url(os.environ["STORE"], Rules(rules).quotas, deadline=5.0)

    return RateLimitMiddleware(none(), limiter, rules, identify=of_scope, **options)


class Worker:
    """One uvicorn worker in a process of its own."""

    def __init__(self, name: str, store: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "uvicorn", "--factory", f"benchmarks.web_served:{name}"]
        options = ["--port", str(self.port), "--log-level", "error", "--no-access-log"]
        self._process = subprocess.Popen([*command, *options], env=os.environ | {"STORE": store})
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + _MAX_START
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            except OSError:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.05)

    def load(self, seconds: int) -> tuple[float, float]:
        """Return requests a second, and processor time of the worker for a request (s)."""
        before = self._used()
        url = f"http://127.0.0.1:{self.port}{PATH}"
        told = subprocess.run(["wrk", "-t1", "-c8", f"-d{seconds}s", url], capture_output=True, text=True, check=True)
        if "Non-2xx" in told.stdout:
            raise SystemExit(told.stdout)
        requests = int(re.findall(r"(\d+) requests in", told.stdout)[0])
        return float(re.findall(r"Requests/sec:\s*([\d.]+)", told.stdout)[0]), (self._used() - before) / requests

    def _used(self) -> float:
        with open(f"/proc/{self._process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each contender (default 5)")
    parser.add_argument("--seconds", type=int, default=2, help="length of a round (s, default 2)")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed, and makes the requests: install it")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in _CONTENDERS}
    with ExitStack() as stack:
        store = stack.enter_context(closing(EmbeddedStore()))
        far = stack.enter_context(distant(store.url, 0.001))
        workers = {name: stack.enter_context(closing(Worker(name, far))) for name in _CONTENDERS}
        for number in range(arguments.rounds + 1):
            for name, worker in workers.items():
                told = worker.load(arguments.seconds)
                if number:  # the first round warms up
                    found[name].append(told)
    _print(found)


def _print(found: dict[str, list[tuple[float, float]]]) -> None:
    print("| FastAPI on one uvicorn worker | requests/s | of no limiter | processor time, us a request |")
    print("|---|--:|--:|--:|")
    for name, title in _CONTENDERS.items():
        shares = [ours[0] / theirs[0] for ours, theirs in zip(found[name], found["none"], strict=True)]
        rate, used = (median(each) for each in zip(*found[name], strict=True))
        print(f"| {title} | {rate:,.0f} | {median(shares):.0%} | {used * 1e6:.0f} |")
    print(f"\nMedians of {len(found['none'])} rounds; load {os.getloadavg()[0]:.1f} at the end.")


if __name__ == "__main__":
    main()

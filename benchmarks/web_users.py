"""A FastAPI service whose every request is another user: without a limiter, under ours, and under slowapi.

    python -m benchmarks.web_users --url redis://localhost:6379/0 [--seconds S] [--rounds N] [--users new|one|zipf]
        [--arrivals RATE]

uvicorn serves one application a contestant, in one process. `wrk`, which has to be installed, sends requests by eight
connections, each of a user that was never seen; of one user; or of one of 200,000, the n-th of them as often as 1 / n
says. With --arrivals requests come at random instants at this rate, whatever earlier ones wait for. The contestants
take turns. The medians of the rounds are printed: requests a second, the processor time that the limiter adds to a
request (us), and the slowest of 100 requests (ms). With several rules each has a key of its own by user. Exit status 1
if an answer was not 200.

Python collects all garbage once soon after its imports: 50 ms here. `wrk` counts a pause once for each request that it
would have sent meanwhile. In a round of 4 s that is more than one request in 100, and fewer in one of 15 s.
"""

import argparse
import asyncio
import itertools
import math
import os
import random
import re
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from fastapi import FastAPI, Request

from benchmarks.markdown import table
from benchmarks.web_arrivals import Arrivals

QUOTAS = {"new": "100/minute", "one": "1000000/minute", "zipf": "1000000/minute"}
_CROWD = 200_000
CONTESTANTS = ("none", "batchlimit 1", "batchlimit 4", "slowapi 1", "slowapi 4")
_SCRIPT = """
local made, last = 0, math.log(%d)
local run = '%s'
local names = {
    new = function() made = made + 1 return made end,
    one = function() return 1 end,
    zipf = function() return math.floor(math.exp(math.random() * last)) end,
}
request = function() return wrk.format('GET', '/item', {['x-user'] = run .. names['%s']()}) end
"""


class Run(NamedTuple):
    """What came of one contestant: requests a second, processor us a request, p99 (ms), answers but 200."""

    rate: float
    processor: float
    p99: float
    failed: float


def application() -> FastAPI:
    """Return the application of the contestant that the environment names."""
    name, _, rules = os.environ["CONTESTANT"].partition(" ")
    return _MADE[name](os.environ["STORE"], int(rules or 0))


def _none(_: str, __: int) -> FastAPI:
    app = FastAPI()

    @app.get("/item")
    async def item(request: Request) -> dict[str, bool]:
        return {"ok": True}

    return app


def _batchlimit(url: str, rules: int) -> FastAPI:
    from batchlimit.integrations.fastapi import add_rate_limits
    from batchlimit.rules import Rule

    app = _none(url, rules)
    prefix = os.environ["PREFIX"]
    add_rate_limits(
        app,
        url,
        rules=[Rule(f"{prefix}{n}", os.environ["QUOTA"], key=f"{prefix}{n}:{{user}}") for n in range(rules)],
        identify=lambda scope: {"user": dict(scope["headers"])[b"x-user"].decode()},
    )
    return app


def _slowapi(url: str, rules: int) -> FastAPI:
    from slowapi import Limiter

    app = FastAPI()
    limiter: Any = Limiter(key_func=lambda request: request.headers["x-user"], storage_uri=url)
    app.state.limiter = limiter

    async def item(request: Request) -> dict[str, bool]:
        return {"ok": True}

    for n in range(rules):
        item = limiter.limit(os.environ["QUOTA"], key_func=lambda request, n=n: f"{n}:{request.headers['x-user']}")(
            item
        )
    app.get("/item")(item)
    return app


_MADE = {"none": _none, "batchlimit": _batchlimit, "slowapi": _slowapi}


def run(contestant: str, url: str, seconds: float, users: str, arrivals: float) -> Run:
    """Serve a contestant, ask it for so many seconds, and end it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {"CONTESTANT": contestant, "STORE": url, "PREFIX": f"r{secrets.token_hex(4)}-", "QUOTA": QUOTAS[users]}
    command = [sys.executable, "-m", "uvicorn", "benchmarks.web_users:application", "--factory", "--no-access-log"]
    options = ["--port", str(port), "--log-level", "error", "--timeout-keep-alive", "60"]  # idle ones stay open
    server = subprocess.Popen([*command, *options], env=os.environ | own)
    try:
        _reached(port)
        started = _processor(server.pid)
        count, rate, p99, failed = _arrived(port, seconds, users, arrivals) if arrivals else _wrk(port, seconds, users)
        used = _processor(server.pid) - started
    finally:
        server.terminate()
        server.wait()
    return Run(rate, used / count * 1e6, p99, failed)


def _reached(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"no server at port {port}")


def _processor(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wrk(port: int, seconds: float, users: str) -> tuple[int, float, float, int]:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_SCRIPT % (_CROWD, secrets.token_hex(4), users))
        script.flush()
        command = ["wrk", "-t1", "-c8", f"-d{seconds:g}s", "--latency", "-s", script.name, f"http://127.0.0.1:{port}"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", told)
    count = int(_figure(r"(\d+) requests in", told))
    return count, _figure(r"Requests/sec:\s+([\d.]+)", told), _p99(told), int(failed[1]) if failed else 0


def _arrived(port: int, seconds: float, users: str, rate: float) -> tuple[int, float, float, int]:
    run, made = secrets.token_hex(4), itertools.count()
    names: dict[str, Callable[[], int]] = {
        "new": lambda: next(made),
        "one": lambda: 1,
        "zipf": lambda: int(math.exp(random.random() * math.log(_CROWD))),
    }
    arrivals = Arrivals(port, rate, lambda: f"{run}{names[users]()}")
    asyncio.run(arrivals.run(seconds))
    took = sorted(arrivals.took)
    return len(took), len(took) / seconds, took[len(took) * 99 // 100] * 1e3, arrivals.failed


def _figure(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found is not None, text
    return float(found[1])


def _p99(text: str) -> float:
    found = re.search(r"99%\s+([\d.]+)(us|ms|s)", text)
    assert found is not None, text
    return float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[found[2]]


def main() -> int:
    """Measure, and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="of a Redis near")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each round (default 15)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--users", choices=QUOTAS, default="new", help="who sends a request (default %(default)s)")
    parser.add_argument("--arrivals", type=float, default=0.0, help="requests a second at random instants, not by wrk")
    chosen = parser.parse_args()
    if not chosen.arrivals and shutil.which("wrk") is None:
        parser.error("needs the program wrk")
    runs: dict[str, list[Run]] = {each: [] for each in CONTESTANTS}
    for _ in range(chosen.rounds):
        for each in CONTESTANTS:
            runs[each].append(run(each, chosen.url, chosen.seconds, chosen.users, chosen.arrivals))
    median = {
        each: Run(*(statistics.median(figures) for figures in zip(*found, strict=True))) for each, found in runs.items()
    }
    floor = median["none"].processor
    rows = [
        [each, f"{it.rate:,.0f}", f"{it.processor - floor:.0f}", f"{it.p99:.1f}", f"{it.failed:.0f}"]
        for each, it in median.items()
    ]
    print(table(["contestant, rules", "requests/s", "us added", "p99, ms", "not 200"], rows))
    return int(any(it.failed for it in median.values()))


if __name__ == "__main__":
    sys.exit(main())

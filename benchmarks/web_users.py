"""A service whose every request is another user: without a limiter, under ours, and under those of others.

    python -m benchmarks.web_users --url redis://localhost:6379/0 [--framework fastapi|flask|django] [--seconds S]
        [--rounds N] [--users new|one|zipf] [--arrivals RATE]

One process serves one application a contestant (`web_user_apps.py`): uvicorn one of FastAPI, gunicorn one of Flask or
Django with eight threads. The limiters of others take part where they are installed: slowapi and fastapi-limiter,
Flask-Limiter, django-ratelimit. `wrk`, which has to be installed, sends requests by eight
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
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks.markdown import table
from benchmarks.web_arrivals import Arrivals
from benchmarks.web_user_apps import APPS

QUOTAS = {"new": "100/minute", "one": "1000000/minute", "zipf": "1000000/minute"}
_CROWD = 200_000
PACKAGES = {"slowapi": "slowapi", "fastapi-limiter": "fastapi_limiter", "Flask-Limiter": "flask_limiter"}
PACKAGES["django-ratelimit"] = "django_ratelimit"
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


def contestants(framework: str) -> list[str]:
    """Return the names of all that are installed, with how many rules each has."""
    names = [each for each in APPS[framework] if each not in PACKAGES or find_spec(PACKAGES[each])]
    return [f"{each} {rules}" for each in names for rules in ((0,) if each == "none" else (1, 4))]


def run(framework: str, contestant: str, url: str, seconds: float, users: str, arrivals: float) -> Run:
    """Serve a contestant, ask it for so many seconds, and end it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {"CONTESTANT": f"{framework} {contestant}", "STORE": url, "PREFIX": f"r{secrets.token_hex(4)}-"}
    options = ["uvicorn", "benchmarks.web_user_apps:application", "--factory", "--no-access-log", "--port", str(port)]
    options += ["--log-level", "error", "--timeout-keep-alive", "60"]  # idle ones stay open
    if framework != "fastapi":
        options = ["gunicorn", "benchmarks.web_user_apps:application()", "-b", f"127.0.0.1:{port}", "-w1", "-kgthread"]
        options += ["--threads=8", "--keep-alive=60", "--log-level=error"]
    server = subprocess.Popen([sys.executable, "-m", *options], env=os.environ | own | {"QUOTA": QUOTAS[users]})
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
            with socket.create_connection(
                ("127.0.0.1", port), timeout=5
            ) as asking:  # gunicorn listens before it serves
                asking.sendall(b"GET /item HTTP/1.1\r\nHost: it\r\nx-user: first\r\nConnection: close\r\n\r\n")
                if asking.recv(12).endswith(b"200"):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError(f"no server at port {port}")


def _processor(pid: int) -> float:
    """Return the processor time of a process and its workers, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    workers = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(
        _processor(int(each)) for each in workers
    )


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
    parser.add_argument("--framework", choices=APPS, default="fastapi", help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each round (default 15)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--users", choices=QUOTAS, default="new", help="who sends a request (default %(default)s)")
    parser.add_argument("--arrivals", type=float, default=0.0, help="requests a second at random instants, not by wrk")
    chosen = parser.parse_args()
    if not chosen.arrivals and shutil.which("wrk") is None:
        parser.error("needs the program wrk")
    runs: dict[str, list[Run]] = {each: [] for each in contestants(chosen.framework)}
    for _ in range(chosen.rounds):
        for each in runs:
            runs[each].append(run(chosen.framework, each, chosen.url, chosen.seconds, chosen.users, chosen.arrivals))
    median = {
        each: Run(*(statistics.median(figures) for figures in zip(*found, strict=True))) for each, found in runs.items()
    }
    floor = median["none 0"].processor
    rows = [
        [each, f"{it.rate:,.0f}", f"{it.processor - floor:.0f}", f"{it.p99:.1f}", f"{it.failed:.0f}"]
        for each, it in median.items()
    ]
    print(table(["contestant, rules", "requests/s", "us added", "p99, ms", "not 200"], rows))
    return int(any(it.failed for it in median.values()))


if __name__ == "__main__":
    sys.exit(main())

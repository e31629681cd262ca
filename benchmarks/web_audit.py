"""Workers of a real server under more traffic than the limit allows: what the responses say was admitted, audited.

    python -m benchmarks.web_audit [--workers 4] [--seconds 10] [--rate 50] [--times 3] [--url URL]

uvicorn runs the workers, each with the ASGI middleware and a limiter of its own, before one real Valkey. Threads of
this process send requests at `times` the rate, each over its own connections. A request was admitted at some instant
between sending it and receiving its 200. The audit finds every window in which surely more than burst + rate x t were
admitted; the excess must be 0. With `--url memory://` each worker has a limit of its own, and there must be an excess.
"""

import argparse
import http.client
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from os import getloadavg
from pathlib import Path
from typing import NamedTuple

from batchlimit import Quota
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.audited_fleet.audit import Admission, excess
from benchmarks.figures import ran_on
from tests.integrations.worker_commands import working

CLIENTS = 16
# A client that stalls finds its connection open still.
UVICORN = ["uvicorn", "--fd", "{fd}", "--log-level", "error", "--timeout-keep-alive", "1000"]
_APP = """import os
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.rules import Rule
from batchlimit import AsyncRateLimiter
rule = Rule("all", {quota!r}, key="all")
patient = {{"deadline": 30.0, "connect_timeout": 30.0}}
limiter = AsyncRateLimiter.from_url({url!r}, {{"all": {quota!r}}}, prefix={prefix!r}, **patient)
async def plain(scope, receive, send):
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": b"hello"}})
limited = RateLimitMiddleware(plain, limiter, [rule])
async def app(scope, receive, send):
    async def marked(message):
        if message["type"] == "http.response.start":
            message = {{**message, "headers": [*message["headers"], (b"x-worker", b"%d" % os.getpid())]}}
        await send(message)
    await (plain if scope["type"] == "http" and scope["path"] == "/met" else limited)(scope, receive, marked)
"""


class Traffic(NamedTuple):
    """What came of all requests: the intervals of those that were admitted, and statuses and workers of all."""

    admitted: list[Admission]
    statuses: Counter[int]
    workers: Counter[str]


def audited(url: str, workers: int, quota: str, requests: int, pace: float) -> Traffic:
    """Send so many requests, `pace` a second, or as fast as it goes if that is slower."""
    traffic = Traffic([], Counter(), Counter())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "audited.py").write_text(_APP.format(quota=quota, url=url, prefix=uuid.uuid4().hex), "utf-8")
        with working([*UVICORN, "--workers", str(workers), "audited:app"], Path(folder)) as crew:
            meet(crew.port, workers)
            clients = [
                threading.Thread(target=_client, args=(crew.port, requests // CLIENTS, CLIENTS / pace, traffic))
                for _ in range(CLIENTS)
            ]
            for each in clients:
                each.start()
            for each in clients:
                each.join()
    return traffic


def meet(port: int, workers: int) -> None:
    """Wait until so many workers have answered: the first one would have all requests while others start."""
    found: set[str | None] = set()
    for _ in range(50_000):
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=100.0)) as connection:
            connection.request("GET", "/met", headers={"Connection": "close"})
            found.add(connection.getresponse().headers["x-worker"])
        if len(found) == workers:
            return
    raise RuntimeError(f"only {len(found)} of {workers} workers answer")


def _client(port: int, requests: int, every: float, traffic: Traffic) -> None:
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100.0)  # connects when it is used
    for number in range(requests):
        time.sleep(max(0.0, began + number * every - time.monotonic()))
        before = time.monotonic()
        connection.request("GET", "/")
        reply = connection.getresponse()
        after = time.monotonic()
        reply.read()
        traffic.statuses[reply.status] += 1
        traffic.workers[reply.headers.get("x-worker", "")] += 1
        if reply.status == 200:
            traffic.admitted.append((before, after, 1))
        if number % 4 == 3:  # now and then another worker
            connection.close()
    connection.close()


@contextmanager
def _own() -> Iterator[str]:
    with closing(EmbeddedStore()) as store:
        yield store.url


def main() -> int:
    """Run and tell; 1 if too much was admitted, or something but 200 and 429 was answered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4, help="default 4")
    parser.add_argument("--seconds", type=float, default=10.0, help="default 10")
    parser.add_argument("--rate", type=int, default=50, help="of the limit, a second; its burst is as many (50)")
    parser.add_argument("--times", type=float, default=3.0, help="traffic, in times of the rate (default 3)")
    parser.add_argument("--url", default="", help="of the store (default: a Valkey of its own)")
    chosen = parser.parse_args()
    quota, pace = f"{chosen.rate}/s", chosen.rate * chosen.times
    with nullcontext(chosen.url) if chosen.url else _own() as url:
        traffic = audited(url, chosen.workers, quota, int(pace * chosen.seconds), pace)
    found = traffic.admitted
    lasted = max(after for _, after, _ in found) - min(before for before, _, _ in found)
    too_many = excess(found, Quota.parse(quota))
    print(f"{ran_on()}, load {getloadavg()[0]:.1f}")
    print(f"{sum(traffic.statuses.values())} requests to {len(traffic.workers)} workers: {dict(traffic.statuses)}")
    allowed = chosen.rate * (1 + lasted)
    print(
        f"{len(found)} admitted in {lasted:.1f} s, {len(found) / allowed:.1%} of what {quota} allows; excess {too_many}"
    )
    return int(too_many > 0 or not set(traffic.statuses) <= {200, 429})


if __name__ == "__main__":
    sys.exit(main())

"""Logins over the workers of a real server: `5/minute` where only failures are charged, and clients that come again.

    python -m benchmarks.logins [--workers 4] [--rounds 6] [--url URL]

uvicorn runs the workers, each with the ASGI middleware and a limiter of its own, before one real Valkey. Each round is
another user: five right logins at once, of which none may be refused; eight wrong ones after the other, of which five
are tried; and a client that comes when it was told to, to whichever worker has it then. Exit status 1 if not so.
"""

import argparse
import http.client
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from os import getloadavg
from pathlib import Path
from typing import NamedTuple

from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.figures import Figure, report
from benchmarks.small_limits.told import AMISS
from benchmarks.web_audit import UVICORN, meet
from tests.integrations.worker_commands import working

_RIGHT, _WRONG, _LIMIT = 5, 8, 5
_APP = """import os
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.rules import Rule
from batchlimit import AsyncRateLimiter
rule = Rule("login", "5/minute", key="login:{{user}}", charge=[401])
patient = {{"deadline": 5.0, "connect_timeout": 30.0}}
limiter = AsyncRateLimiter.from_url({url!r}, {{"login:*": "5/minute"}}, prefix={prefix!r}, **patient)
async def plain(scope, receive, send):
    status = 401 if scope["path"] == "/wrong" else 200
    worker = (b"x-worker", b"%d" % os.getpid())
    await send({{"type": "http.response.start", "status": status, "headers": [worker]}})
    await send({{"type": "http.response.body", "body": b"hello"}})
def identify(scope):
    return {{"user": dict(scope["headers"]).get(b"x-user", b"").decode()}}
limited = RateLimitMiddleware(plain, limiter, [rule], identify=identify)
async def app(scope, receive, send):
    await (plain if scope["type"] == "http" and scope["path"] == "/met" else limited)(scope, receive, send)
"""


class Reply(NamedTuple):
    """What a response said; `wait`: its Retry-After."""

    status: int
    wait: float


def login(port: int, user: str, path: str) -> Reply:
    """Try one login, over a connection of its own: any worker may have it."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=100.0)) as connection:
        connection.request("GET", path, headers={"x-user": user, "Connection": "close"})
        reply = connection.getresponse()
        reply.read()
        return Reply(reply.status, float(reply.headers.get("Retry-After", 0)))


def rounds(port: int, number: int) -> Iterator[Figure]:
    """Carry out so many rounds."""
    refused, tried, told, real = 0, [], [], []
    with ThreadPoolExecutor(_RIGHT) as pool:
        for _ in range(number):
            right, wrong = (uuid.uuid4().hex for _ in range(2))
            calls = [pool.submit(login, port, right, "/right") for _ in range(_RIGHT)]
            refused += sum(each.result().status != 200 for each in calls)
            replies = [login(port, wrong, "/wrong") for _ in range(_WRONG)]
            tried.append(sum(each.status == 401 for each in replies))
            began, reply = time.monotonic(), replies[-1]
            told.append(reply.wait)
            while reply.status == 429:
                time.sleep(reply.wait)
                reply = login(port, wrong, "/wrong")
            real.append(time.monotonic() - began)
    load = f"load {getloadavg()[0]:.1f}"
    yield Figure(f"{_RIGHT} right logins at once: refused", refused, f"of {_RIGHT * number}", at_most=0, note=load)
    note = f"each of {number} rounds: {tried}"
    yield Figure(f"{_WRONG} wrong logins: tried, at the most", max(tried), at_most=_LIMIT, note=note)
    yield Figure(f"{_WRONG} wrong logins: tried, at the least", min(tried), at_least=_LIMIT)
    ratio = sum(real) / sum(told)
    note = f"told {statistics.mean(told):.1f} s, in whole seconds, admitted after {statistics.mean(real):.1f}"
    yield Figure("a client that comes when told to: real / told", ratio, at_most=1 + AMISS, note=note)


def main() -> int:
    """Run and tell; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--url", default="", help="of the store (default: a Valkey of its own)")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = chosen.url or stack.enter_context(closing(EmbeddedStore())).url
        Path(folder, "logins.py").write_text(_APP.format(url=url, prefix=uuid.uuid4().hex), "utf-8")
        with working([*UVICORN, "--workers", str(chosen.workers), "logins:app"], Path(folder)) as crew:
            meet(crew.port, chosen.workers)
            found = report(rounds(crew.port, chosen.rounds), as_document=False)
    return int(any(each.verdict == "short" for each in found))


if __name__ == "__main__":
    sys.exit(main())

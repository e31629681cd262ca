"""Two rolling restarts of a real server under a limit: what they lose, and by whom.

    python -m benchmarks.restarts [--seconds 10] [--workers 4] [--rate 50] [--restarts 2] [--servers NAME...] [--bare]

Each server gets twice as many requests as the rate allows, on a timetable that no slow answer delays. Half of them come
over connections that stay open, half over fresh ones. A client that is cut off on an open one asks again. SIGHUP
restarts the workers. gunicorn lets all old ones go before the new ones have imported the application. It answers nobody
until then ("silence"). A bucket that is full by then gets no more refill, whoever keeps it. So a plain bucket stands
beside the limiter. It decides on the same requests at the instants of their answers. Tokens that are there at the end
are lost by neither. "died" are tokens that were granted and neither spent nor returned. The servers find all modules
compiled, as pip installs them: the first workers see to that.

Exit status 1 if a window has more than burst + rate * T. The same if the limiter lost more than 2 %, unless a silence
lasted for half the time in which the bucket fills.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
import uuid
from collections import Counter, deque
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack, closing, nullcontext
from importlib.util import find_spec
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from batchlimit import Quota
from batchlimit.admin import Admin
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.audited_fleet.audit import Admission, excess
from benchmarks.figures import ran_on
from benchmarks.markdown import percent, table
from benchmarks.web_audit import meet
from tests.integrations.worker_commands import ROOT, working

_GUNICORN = ["gunicorn", "--no-control-socket", "--log-level=error", "--bind=fd://{fd}", "--workers={workers}"]
_UVICORN = ["uvicorn", "--log-level=error", "--fd={fd}", "--workers={workers}", "--factory"]
_THREADS, _TASKS = "benchmarks.restarted:threads", "benchmarks.restarted:tasks"
SERVERS = {
    "gunicorn gthread": [*_GUNICORN, "--worker-class=gthread", "--threads=4", f"{_THREADS}()"],
    "gunicorn gthread preload": [*_GUNICORN, "--worker-class=gthread", "--threads=4", "--preload", f"{_THREADS}()"],
    "gunicorn sync": [*_GUNICORN, "--worker-class=sync", f"{_THREADS}()"],
    "gunicorn asgi": [*_GUNICORN, "--worker-class=asgi", f"{_TASKS}()"],
    "gunicorn uvicorn": [*_GUNICORN, "--worker-class=uvicorn.workers.UvicornWorker", f"{_TASKS}()"],
    "uvicorn": [*_UVICORN, _TASKS],
}
_NEEDS = {"gunicorn asgi": ("gunicorn.asgi",), "gunicorn uvicorn": ("uvicorn.workers",)}
_TIMES = 2
"""Demand, in times of the rate."""
_GOAL = 0.02
_PATIENCE = 60.0
_LOOKS = 0.02
"""Seconds between two looks at the bucket: one that was full for long is forgotten, and begins anew."""


class Seen(NamedTuple):
    """What a bucket says of itself; `age` in seconds."""

    used: int
    age: float
    level: float
    outstanding: int


_NOTHING = Seen(0, 0.0, 0.0, 0)

Answer = tuple[float, float, int]
"""When a request was sent, when its answer came, and the status."""


class Run(NamedTuple):
    """What came of all requests, and of all tokens."""

    quota: Quota
    answers: list[Answer]
    errors: Counter[str]
    vain: int = 0
    left: float = 0.0

    @property
    def admitted(self) -> list[Admission]:
        """The requests that were not refused, for the audit."""
        return [(before, after, 1) for before, after, status in self.answers if status == 200]

    @property
    def lasted(self) -> float:
        """Seconds from the first request to the last answer."""
        return max(after for _, after, _ in self.answers) - min(before for before, _, _ in self.answers)

    @property
    def silence(self) -> float:
        """The longest time (s) in which nobody was answered."""
        times = sorted(after for _, after, _ in self.answers)
        return max(later - sooner for sooner, later in pairwise(times))

    @property
    def lost(self) -> float:
        """What we admitted less than a plain bucket, as a part of that."""
        plain, left = plain_bucket(self.quota, self.answers)
        return (plain + left - len(self.admitted) - self.left) / plain

    @property
    def is_sound(self) -> bool:
        """Whether the promise was kept, and little lost as far as that is ours to say."""
        is_silent = self.silence > 0.5 * self.quota.burst / self.quota.rate
        return excess(self.admitted, self.quota) == 0 and (is_silent or self.lost <= _GOAL)


def plain_bucket(quota: Quota, answers: Iterable[Answer]) -> tuple[int, float]:
    """Return how many of the requests a plain bucket admits that decides at their answers, and what is left in it."""
    level, last, admitted = float(quota.burst), None, 0
    for now in sorted(after for _, after, _ in answers):
        level = min(quota.burst, level + (now - (now if last is None else last)) * quota.rate)
        last = now
        if level >= 1.0:
            level, admitted = level - 1.0, admitted + 1
    return admitted, level


class Client:
    """Asks a server, and keeps what it says."""

    def __init__(self, port: int) -> None:
        self.answers: list[Answer] = []
        self.errors: Counter[str] = Counter()
        self._port = port
        self._kept: deque[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = deque()

    async def ask(self, path: str, *, keep: bool) -> None:
        """Ask once; and once more if a connection turns out to be closed that was kept."""
        before = time.monotonic()
        while True:
            was_kept = keep and bool(self._kept)
            try:
                status = await asyncio.wait_for(self._exchange(path, keep=keep), _PATIENCE)
            except (OSError, EOFError, TimeoutError) as error:
                self.errors["again" if was_kept else type(error).__name__] += 1
                if not was_kept:
                    return
            else:
                self.answers.append((before, time.monotonic(), status))
                return

    async def _exchange(self, path: str, *, keep: bool) -> int:
        kept = self._kept.popleft() if keep and self._kept else None
        reader, writer = kept or await asyncio.open_connection("127.0.0.1", self._port)
        close = "" if keep else "Connection: close\r\n"
        with ExitStack() as stack:
            stack.callback(writer.close)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: test\r\n{close}\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            await reader.readexactly(int(head.partition("content-length:")[2].split("\r\n")[0]))
            if keep and "connection: close" not in head:
                stack.pop_all()
                self._kept.append((reader, writer))
        return int(head.split()[1])

    async def keep_asking(self, pace: float, seconds: float, restarts: int, master: int) -> None:
        """Ask on a timetable, and have the workers restarted meanwhile."""
        began, asked = time.monotonic(), []
        due = [seconds * (number + 1) / (restarts + 1) for number in range(restarts)]
        for number in range(int(seconds * pace)):
            await asyncio.sleep(max(0.0, began + number / pace - time.monotonic()))
            if due and time.monotonic() >= began + due[0]:
                os.kill(master, signal.SIGHUP)
                del due[0]
            asked.append(asyncio.create_task(self.ask("/asked", keep=number % 2 == 0)))
        await asyncio.gather(*asked)
        for _, writer in self._kept:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in self._kept), return_exceptions=True)


class Watch:
    """Counts what a bucket grants, though it may be forgotten in between."""

    def __init__(self, admin: Admin, key: str) -> None:
        self._admin, self._key = admin, key
        self._before, self._last = 0, _NOTHING

    async def look(self) -> None:
        """Look, again and again."""
        while True:
            await self.look_once()
            await asyncio.sleep(_LOOKS)

    async def look_once(self) -> None:
        """Look once."""
        found = await asyncio.to_thread(self._admin.buckets.get, self._key)
        now = _NOTHING if found is None else Seen(found.used, found.age, found.levels[0], found.outstanding)
        if now.age < self._last.age:
            self._before += self._last.used
        self._last = now

    def tell(self, admitted: int) -> tuple[int, float]:
        """Return how many tokens were granted and are lost, and how many may still be spent."""
        unspent = self._before + self._last.used - admitted
        held = max(0, min(unspent, self._last.outstanding))
        return unspent - held, self._last.level + held


def run(url: str, server: str, *, workers: int, rate: int, seconds: float, restarts: int) -> Run:
    """Start a server and ask it; url "": there is no limiter in it."""
    command = [each.replace("{workers}", str(workers)) for each in SERVERS[server]]
    quota, key = Quota.parse(f"{rate}/s"), f"all-{uuid.uuid4().hex}"
    with ExitStack() as stack:
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": stack.enter_context(TemporaryDirectory())}
        crew = stack.enter_context(working(command, ROOT, STORE=url, QUOTA=f"{rate}/s", KEY=key, **compiled))
        watch = Watch(stack.enter_context(Admin.from_url(url)), key) if url else None
        meet(crew.port, workers)
        client = Client(crew.port)
        asyncio.run(_watched(client.keep_asking(_TIMES * rate, seconds, restarts, crew.process.pid), watch))
    admitted = sum(status == 200 for _, _, status in client.answers)
    return Run(quota, client.answers, client.errors, *(() if watch is None else watch.tell(admitted)))


async def _watched(asking: Coroutine[Any, Any, None], watch: Watch | None) -> None:
    if watch is None:
        return await asking
    looking = asyncio.create_task(watch.look())
    await asking
    looking.cancel()
    await asyncio.wait([looking])
    return await watch.look_once()


HEAD = ["server", "admitted of burst + rate x T", "a plain bucket", "lost of it", "died", "503", "errors", "silence"]
"""Of a server without a limiter only the errors and the silence mean something."""


def row(server: str, found: Run) -> list[str]:
    """Return a line of the table."""
    refused = sum(status == 503 for _, _, status in found.answers)
    plain, _ = plain_bucket(found.quota, found.answers)
    allowed = found.quota.burst + found.quota.rate * found.lasted
    errors = ", ".join(f"{count} {name}" for name, count in sorted(found.errors.items())) or "none"
    shares = [f"{len(found.admitted)} of {allowed:.0f}", percent(plain / allowed, 1), percent(found.lost, 1)]
    return [server, *shares, str(found.vain), str(refused), errors, f"{found.silence:.1f} s"]


def main() -> int:
    """Measure, and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each server (default 10)")
    parser.add_argument("--workers", type=int, default=4, help="default 4")
    parser.add_argument("--rate", type=int, default=50, help="of the limit, a second; its burst is as many (50)")
    parser.add_argument("--restarts", type=int, default=2, help="default 2")
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=[*SERVERS], help="default: all")
    parser.add_argument("--bare", action="store_true", help="each server without a limiter as well")
    parser.add_argument("--url", default="", help="of the store (default: a Valkey of its own)")
    chosen = parser.parse_args()
    told = {name: getattr(chosen, name) for name in ("workers", "rate", "seconds", "restarts")}
    wrong, rows = False, list[list[str]]()
    with nullcontext(chosen.url) if chosen.url else closing(EmbeddedStore()) as store:
        url = chosen.url or store.url
        for server in chosen.servers:
            if not all(find_spec(module) for module in _NEEDS.get(server, ())):
                continue
            found = run(url, server, **told)
            rows.append(row(server, found))
            wrong = wrong or not found.is_sound
            if chosen.bare:
                rows.append(row(f"{server}, no limiter", run("", server, **told)))
    print(f"{ran_on()}, load {os.getloadavg()[0]:.1f}\n{table(HEAD, rows)}")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())

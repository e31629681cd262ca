"""What the tests of the threaded API share: a clock, a store that does as told, threads and processes."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from batchlimit import Quota, RateLimiter, StoreUnavailable
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.errors import BucketUnavailable
from batchlimit.stores import MemoryStore, Store

T = TypeVar("T")

DEADLINE = 100.0
"""How long to wait for a fact. Generous: a slow machine is no failure of what is tested."""

KEY = "tenant:42"


ARRIVAL = 0.001
"""Seconds by which a caller comes later than it was told: nobody hits the microsecond in which a token is whole."""


class Clock:
    """Seconds that pass when the test says so; it fails a caller that reads it without end."""

    def __init__(self, *, reads: float = float("inf")) -> None:
        self.now = 1000.0
        self._reads = reads

    def __call__(self) -> float:
        self._reads -= 1
        assert self._reads > 0, "somebody spins on the clock"
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


class Gate:
    """Holds up whoever passes until it is opened."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._open = threading.Event()

    def __call__(self) -> None:
        self._reached.set()
        assert self._open.wait(DEADLINE), "a gate that nobody opened"

    @property
    def reached(self) -> bool:
        return self._reached.is_set()

    def await_someone(self) -> None:
        assert self._reached.wait(DEADLINE), "nobody came to the gate"

    def open(self) -> None:
        self._open.set()


def nothing() -> None:
    """What a stage does unless told."""


def away() -> None:
    """What a store does that is away."""
    raise StoreUnavailable("away")


class Stage:
    """A store that notes what it is asked and, around it, does what the test says.

    `before` runs on the way to the store: what it raises, the store has never heard of. `after` runs on the way back:
    what it raises loses the answer to an ask that was carried out.
    """

    address = "stage://"
    is_prompt = True  # so that it is asked in its caller's thread, as the stores that most limiters have

    def __init__(self, inner: Store | None = None) -> None:
        self.inner = MemoryStore() if inner is None else inner
        self.asks: list[Ask] = []
        self.grants: list[Grant] = []
        self.backs: list[GiveBack] = []
        self.before: Callable[[], None] = nothing
        self.after: Callable[[], None] = nothing
        self.before_back: Callable[[], None] = nothing
        self.before_peek: Callable[[], None] = nothing
        self.before_probe: Callable[[], None] = nothing
        self.probes = 0
        self.closed = 0
        self.has_gates = False  # whether asks of tasks are held up in threads, and not in their loop

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        self.asks.append(ask)
        self.before()
        grant = self.inner.take(key, quota, ask)
        self.grants.append(grant)
        self.after()
        return grant

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        self.backs.append(back)
        self.before_back()
        return self.inner.give_back(key, quota, back)

    def peek(self, key: str, quota: Quota) -> Level:
        self.before_peek()
        return self.inner.peek(key, quota)

    def part(self, key: str) -> str:
        return ""

    def probe(self, key: str) -> None:
        self.probes += 1
        self.before_probe()

    def after_fork(self) -> None:
        self.inner.after_fork()

    def close(self) -> None:
        self.closed += 1
        self.inner.close()


class Piped(Stage):
    """A store that can be asked for many keys at once, of which one may be `broken`."""

    def __init__(self, inner: Store | None = None) -> None:
        super().__init__(inner)
        self.together: list[int] = []
        self.before_many: Callable[[], None] = nothing
        self.broken = ""

    def take_many(self, asks: Sequence[tuple[str, Quota, Ask]]) -> list[Grant | StoreUnavailable]:
        self.together.append(len(asks))
        self.before_many()
        return [BucketUnavailable("broken") if each[0] == self.broken else self.take(*each) for each in asks]


def until(fact: Callable[[], bool]) -> None:
    """Return as soon as the fact holds."""
    deadline = time.monotonic() + DEADLINE
    while not fact():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.001)


def in_child(work: Callable[[], bool]) -> bool:
    """Whether `work` returns True in a forked child."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def quiet(limiter: Any, key: str = KEY) -> bool:
    """Whether nothing is under way to the store, and whoever is first in line knows that it has nothing to ask.

    A refund that meets an ask travels after it, in the background thread's time: and tests have none, or one that
    stands still.
    """
    here = getattr(limiter, "_inner", limiter)
    if (entry := here._entries.get(key)) is None:  # its spend in vain is still under way
        return False
    reservoir = entry.reservoir
    first = reservoir.state.queue.first
    return (
        reservoir.state.in_flight is None
        and first is not None
        and reservoir.forecast.asks_in(first, here._clock()) > 0.0
    )


def start(job: Callable[[], T]) -> "Future[T]":
    """Run the job in a thread of its own, which a failing test may leave behind."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(job())
        except BaseException as error:  # noqa: BLE001  it is raised again where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def together(n: int, job: Callable[[], T]) -> list[T]:
    """Run the job in n threads, which all begin at once; return what each returned."""
    barrier = threading.Barrier(n)

    def begin() -> T:
        barrier.wait(DEADLINE)
        return job()

    return [each.result(DEADLINE) for each in [start(begin) for _ in range(n)]]


def lapsed(store: Store, key: str, quota: Quota) -> bool:
    """Whether no lease is left. The bucket looks for lapsed ones when it is asked, so ask it, for nothing."""
    store.take(key, quota, Ask("onlooker", next(_seqs), need=0, queued=0, want=0))
    return store.peek(key, quota).outstanding == 0


_seqs = iter(range(1, sys.maxsize))


class Process:
    """Another Python, in which a program runs that talks to the test by lines."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self._popen = popen
        self.pid = popen.pid

    def hear(self) -> str:
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        assert line, f"it ended instead of saying anything: {self._errors()}"
        return line.strip()

    def rest(self) -> str:
        """Everything it says until its end."""
        assert self._popen.stdout is not None
        return self._popen.stdout.read()

    def tell(self) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write("\n")
        self._popen.stdin.flush()

    def end(self) -> int:
        """Wait for its end; return how it ended."""
        return self._popen.wait(DEADLINE)

    def errors(self) -> str:
        """What it complained of; after its end."""
        assert self._popen.stderr is not None
        return self._popen.stderr.read()

    def _errors(self) -> str:
        assert self._popen.stderr is not None
        self._popen.kill()
        return self._popen.stderr.read()


PRELUDE = """
import gc, multiprocessing, os, signal, sys, threading, time
from batchlimit import *
from batchlimit.batching import *
from batchlimit.stores import *
from batchlimit.reservoir import requests
from tests.distance import far

requests.Ask = far  # its leases outlast a machine that stalls

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it

URL, PREFIX, KEY = sys.argv[1:4]

def say(*words):
    print(*words, flush=True)

def listen():
    sys.stdin.readline()

def spend(limiter, key=KEY):
    "Try until refused; how often it was not."
    spent = 0
    while limiter.try_acquire(key):
        spent += 1
    return spent

def limiter_of(quota, **options):
    return RateLimiter.from_url(URL, quota, prefix=PREFIX, connect_timeout=30.0, **({"deadline": 30.0} | options))

def fork(job):
    "Run the job in a forked child, which says what it returns; wait for it."
    if (child := os.fork()) == 0:
        signal.alarm(100)  # a deadlock ends, and is seen
        try:
            say(job())
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if status:
        print("the child ended with", status, file=sys.stderr, flush=True)
        os._exit(1)
"""


@contextlib.contextmanager
def process(program: str, url: str, prefix: str, **popen: Any) -> Iterator[Process]:
    """Run a program, indented as the caller likes by four, after PRELUDE; it is killed if it does not end by itself."""
    lines = [line.removeprefix("    ") for line in program.splitlines()]
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + "\n".join(lines), url, prefix, KEY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | popen.pop("env", {}),
        **popen,
    ) as other:
        try:
            yield Process(other)
        finally:
            other.kill()


def said(program: str, url: str, prefix: str, *, logs: bool = True) -> list[str]:
    """Run a program to its end, which is a good one; return its lines. If it `logs` not, its errors are empty."""
    with process(program, url, prefix) as other:
        lines = other.rest().splitlines()
        assert other.end() == 0, other.errors()
        assert logs or other.errors() == ""
    return lines


def spend(limiter: RateLimiter, key: str = KEY) -> int:
    """Try until refused; return how often it was not."""
    spent = 0
    while limiter.try_acquire(key):
        spent += 1
    return spent

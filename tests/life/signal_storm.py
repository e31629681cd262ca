"""Signals that raise amid the calls of one kind of limiter: `python -m tests.life.signal_storm KIND RAISED [SECONDS]`.

The process ends with 0 if all is as before the signals. In a process of its own: signals come to its main thread.
It says how many were raised. `python -m benchmarks.interrupts` plays all kinds, one after the other.
"""

import contextlib
import faulthandler
import logging
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from types import FrameType

from batchlimit import ConcurrencyLimited, ConcurrencyLimiter, Queue, RateLimiter
from batchlimit.admission import Admission
from batchlimit.batching import FixedBatch
from batchlimit.concurrency import KeyedConcurrencyLimiter
from batchlimit.laws import Fixed
from batchlimit.shared import SharedConcurrencyLimiter
from batchlimit.stores import MemoryStore
from tests.life import task_storm
from tests.nodes import await_fact

KEYS = ["a", "b", "c"]
CLOSE = 0.00005
"""Seconds between two signals: one may come while the call that another has interrupted is ending."""
PAUSE = 0.0001
LOST = 0.01
"""Seconds after which another signal comes if Python has lost one: it does so where a handler raises just then."""
LONGEST = 400.0
"""Seconds after which a storm is over, unless one says otherwise, however many signals are left."""
ENDING = 150.0
"""Seconds after which a process tells where it stands, and ends, if the storm is over and it is not."""
QUOTA = "100000/s burst 1000"

Kind = tuple[Callable[[], object], Callable[[], bool]]
"""What is called, and whether nobody waits or is under way."""


class Raised(BaseException):
    """What the signal handler raises."""


class Storm:
    """Calls again and again, until so many signals at least were raised amid the calls.

    They come in bursts, of two on average, with so many seconds between the bursts at most.
    """

    def __init__(self, raised: int, pause: float, seconds: float) -> None:
        self.left, self._pause, self._is_over = raised, pause, False
        self._ends_at = time.monotonic() + seconds

    def _handle(self, _number: int, frame: FrameType | None) -> None:
        """Raise, but where the storm itself runs; also after the last one, which an event loop may have swallowed."""
        self._plan()
        if not self._is_over and frame is not None and frame.f_code not in _OWN:
            self.left -= 1
            raise Raised

    def _plan(self) -> None:
        pause = CLOSE if random.random() < 0.5 else CLOSE + self._pause * random.random()
        signal.setitimer(signal.ITIMER_REAL, pause, LOST)

    def play(self, call: Callable[[], object]) -> None:
        signal.signal(signal.SIGALRM, self._handle)
        self._plan()
        while self.left > 0 and time.monotonic() < self._ends_at:
            try:
                call()
            except Raised:
                pass
            except RuntimeError:  # the call before was interrupted twice, and has not ended yet
                pass
        self._is_over = True
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # first: the handler plans the next signal
        signal.setitimer(signal.ITIMER_REAL, 0.0)


_OWN = {each.__code__ for each in (Storm.play, Storm._handle, Storm._plan)}


def _rates(call: Callable[[RateLimiter], object]) -> Kind:
    limiter = RateLimiter.from_url("memory://", QUOTA, idle_after=1.0)
    for _ in range(2):
        limiter.acquire("a")  # the background thread begins

    def is_at_rest() -> bool:
        """A caller that two signals have interrupted may be counted until the next one comes."""
        with contextlib.suppress(RuntimeError):  # the background thread has not ended a call yet
            call(limiter)
        return not limiter.statistics().waiting

    return lambda: call(limiter), is_at_rest


def rate() -> Kind:
    return _rates(lambda limiter: limiter.acquire("a", 3))


def rates() -> Kind:
    return _rates(lambda limiter: limiter.try_acquire(random.choice(KEYS)))


def refunds() -> Kind:
    def call(limiter: RateLimiter) -> None:
        if limiter.try_acquire("a", 3):
            limiter.refund("a", 2)

    return _rates(call)


def several() -> Kind:
    return _rates(lambda limiter: limiter.acquire_all({"a": 3, "b": 1}))


def _spends(call: Callable[[RateLimiter], object]) -> Kind:
    """At keys that are not in use, beside threads that are led by the one that is interrupted, and that lead it."""
    limiter = RateLimiter(MemoryStore(), QUOTA, sizer=FixedBatch(1), idle_after=1.0)
    limiter.acquire(_any())  # the background thread begins
    queue, over = limiter._registry.spends, threading.Event()
    queue._patience = 1000.0  # a thread that is forgotten shows

    def others() -> None:
        while not over.is_set():
            limiter.try_acquire(_any())

    threads = [threading.Thread(target=others, daemon=True) for _ in range(2)]
    for each in threads:
        each.start()

    def rests() -> bool:
        over.set()
        for each in threads:
            each.join(1.0)
        ended = not any(each.is_alive() for each in threads)
        return ended and not queue._waiting and queue._leader is None and not limiter.statistics().waiting

    return lambda: call(limiter), rests


def _any() -> str:
    return f"{random.randrange(10_000)}"


def spends() -> Kind:
    return _spends(lambda limiter: limiter.acquire(_any(), 3))


def spends_together() -> Kind:
    return _spends(lambda limiter: limiter.decide_all({_any(): 1, _any(): 2}))


def reservations() -> Kind:
    return _spends(lambda limiter: limiter.reserve(_any(), 4).settle(1))


def shared() -> Kind:
    limiter = SharedConcurrencyLimiter.from_url("memory://", {"*": 1})

    def call() -> None:
        with limiter.acquire("a"):
            pass

    call()
    return call, lambda: not any(each.in_flight or each.waiting for each in limiter.statistics().keys.values())


def concurrency() -> Kind:
    limiter = ConcurrencyLimiter(Fixed(1))

    def call() -> None:
        with limiter.acquire():
            pass

    return call, lambda: not limiter.statistics().in_flight


def queue() -> Kind:
    """Another thread takes turns with the one that is interrupted: each waits for the other, and wakes it."""
    limiter = ConcurrencyLimiter(Fixed(1), queue=Queue(9, max_wait=None))
    over = threading.Event()

    def call() -> None:
        with limiter.acquire():
            time.sleep(0)

    def take_turns() -> None:
        while not over.is_set():
            call()

    other = threading.Thread(target=take_turns, daemon=True)
    other.start()

    def rests() -> bool:
        over.set()
        other.join(1.0)
        return not other.is_alive() and not limiter.statistics().in_flight

    return call, rests


def later() -> Kind:
    limiter = ConcurrencyLimiter(Fixed(1), queue=Queue(9, max_wait=0.001))

    def call() -> None:
        with contextlib.suppress(ConcurrencyLimited), limiter.acquire(timeout=0.1):
            limiter.acquire_later(lambda permit: permit.success(), lambda error: None)

    def rests() -> bool:
        seen = limiter.statistics()
        return not (seen.in_flight or seen.waiting)

    return call, rests


def keyed() -> Kind:
    limiter = KeyedConcurrencyLimiter({"*": 1})

    def call() -> None:
        with limiter.acquire(random.choice(KEYS)), limiter.acquire_all(["d", "e"]):
            pass

    return call, lambda: not limiter.statistics().patterns["*"].in_flight


def admission() -> Kind:
    limiter = ConcurrencyLimiter(Fixed(1))
    tokens = RateLimiter.from_url("memory://", QUOTA, idle_after=1.0)
    both = Admission(tokens, limiter)

    def call() -> None:
        with both.admit("a"):
            pass

    call()
    return call, lambda: not limiter.statistics().in_flight and not tokens.statistics().waiting


KINDS = {
    each.__name__: each
    for each in (
        rate,
        rates,
        refunds,
        several,
        spends,
        spends_together,
        reservations,
        shared,
        concurrency,
        queue,
        later,
        keyed,
        admission,
    )
}


ALL_KINDS = KINDS | task_storm.KINDS


def main(kind: str, raised: str, seconds: str = f"{LONGEST}") -> None:
    faulthandler.dump_traceback_later(float(seconds) + ENDING, exit=True)
    warnings.simplefilter("ignore", ResourceWarning)
    sys.unraisablehook = id  # what is raised in a destructor
    logging.disable()  # of what an event loop tells of its callbacks
    call, is_at_rest = ALL_KINDS[kind]()
    storm = Storm(int(raised), PAUSE if kind in KINDS else task_storm.PAUSE, float(seconds))
    storm.play(call)
    sys.stdout.write(f"{int(raised) - storm.left}\n")
    await_fact(is_at_rest, "nobody waits, and nothing is under way")
    for _ in range(10):
        call()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Asynchronous exceptions amid the calls of threads: no thread waits for ever, and nobody is counted who is gone."""

import gc
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from batchlimit import ConcurrencyLimiter, Queue, RateLimiter
from batchlimit.admission import Admission
from batchlimit.batching import FixedBatch, TimeBatch
from batchlimit.laws import Fixed
from tests.depth import depth
from tests.interrupts import stop_at_random
from tests.nodes import await_fact

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*never completed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
RICH = "100000/s burst 1000"


def any_key() -> str:
    return f"{random.randrange(10_000)}"


def settle(limiter: RateLimiter) -> None:
    limiter.reserve(any_key(), 4).settle(1)


CALLS: dict[str, Callable[[RateLimiter], object]] = {
    "leases": lambda limiter: limiter.acquire("a", 3),
    "leases of several keys": lambda limiter: limiter.acquire_all({"a": 3, "b": 1}),
    "spends": lambda limiter: limiter.try_acquire(any_key()),
    "spends at several keys": lambda limiter: limiter.decide_all({any_key(): 1, any_key(): 2}),
    "reservations": settle,
}


@pytest.mark.parametrize("kind", CALLS)
def test_asynchronous_exceptions_leave_nobody_in_line(kind: str) -> None:
    sizer = TimeBatch() if kind.startswith("leases") else FixedBatch(1)
    with RateLimiter.from_url("memory://", RICH, sizer=sizer) as limiter:
        stop_at_random(lambda: CALLS[kind](limiter), depth(300, 10_000))

        def is_at_rest() -> bool:
            with suppress(RuntimeError):  # the background thread has not ended a call yet
                CALLS[kind](limiter)
            return not limiter.statistics().waiting

        await_fact(is_at_rest, "nobody waits")


def test_asynchronous_exceptions_amid_admissions_lose_no_place() -> None:
    """Three threads contend for one place, and pay for it."""
    backend = ConcurrencyLimiter(Fixed(1), queue=Queue(9, max_wait=None))
    with RateLimiter.from_url("memory://", RICH) as rates:
        both = Admission(rates, backend)

        def call() -> None:
            with both.admit("a"):
                pass

        stop_at_random(call, depth(300, 10_000))

        def is_at_rest() -> bool:
            gc.collect()
            with suppress(RuntimeError):
                call()
            return not backend.statistics().in_flight and not rates.statistics().waiting

        await_fact(is_at_rest, "all permits came back")

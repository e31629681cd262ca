"""Limiters of several machines drain together by the time of day, however their law was made."""

import time
from collections.abc import Callable

import pytest

from batchlimit import ConcurrencyLimiter
from batchlimit.concurrency import Keyed, KeyedConcurrencyLimiter
from batchlimit.concurrency.keyed.limits import SharedLaw
from batchlimit.concurrency.law import Law
from batchlimit.concurrency.laws.knee.knee import Knee


def offset_of(law: Law) -> int:
    law = law.law if isinstance(law, SharedLaw) else law
    assert isinstance(law, Knee)
    return law._drains.offset


def is_time_of_day(offset: int) -> bool:
    return abs(time.monotonic_ns() + offset - time.time_ns()) < 60 * 10**9


@pytest.mark.parametrize("make", [lambda: None, Knee, lambda: Knee(maximum=50)])
def test_a_limiter_has_its_law_drain_by_the_time_of_day(make: Callable[[], Law | None]) -> None:
    with ConcurrencyLimiter(make()) as limiter:
        assert is_time_of_day(offset_of(limiter._locked_gate.law))


@pytest.mark.parametrize("shared", [False, True])
def test_so_do_the_laws_of_keys(shared: bool) -> None:
    with KeyedConcurrencyLimiter({"*": Keyed(Knee, shared=shared)}) as limiter:
        limiter.acquire("a").success()
        assert is_time_of_day(offset_of(limiter._by_key["a"].law))


def test_an_offset_of_ones_own_stays() -> None:
    with ConcurrencyLimiter(Knee(offset=0)) as limiter:
        assert offset_of(limiter._locked_gate.law) == 0


def test_a_clock_of_ones_own_is_the_one_of_the_drains() -> None:
    """It need not have to do with the time of day; and the same simulation is to drain at the same instants."""
    with ConcurrencyLimiter(Knee(), clock=lambda: 0) as limiter:
        assert offset_of(limiter._locked_gate.law) == 0

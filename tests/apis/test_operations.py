"""A limiter replays what a recorded one answered: whom it admits, and its limit after each call that ended."""

import gzip
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimited, ConcurrencyLimiter
from batchlimit.concurrency import Law
from tests.awaiting import awaited
from tests.concurrency.laws.traces import law_of

RECORD = Path(__file__).parent / "golden" / "ops_simple_clock.json.gz"


class Threads:
    """A limiter as a thread uses it."""

    def __init__(self, law: Law, clock: Callable[[], int]) -> None:
        self.limiter = ConcurrencyLimiter(law, clock=clock)

    def acquire(self) -> Any:
        return self.limiter.acquire(timeout=0)


class Tasks:
    """A limiter as a task uses it."""

    def __init__(self, law: Law, clock: Callable[[], int]) -> None:
        self.limiter = AsyncConcurrencyLimiter(law, clock=clock)

    def acquire(self) -> Any:
        return awaited(self._acquire)

    def _acquire(self) -> Awaitable[Any]:
        return self.limiter.acquire(timeout=0)


def cases() -> list[dict[str, Any]]:
    with gzip.open(RECORD) as file:
        told = json.load(file)
    assert told["format"] == "batchlimit-golden-ops/1"
    found: list[dict[str, Any]] = told["cases"]
    return found


def law(told: dict[str, Any]) -> Law:
    return law_of(told["algorithm"], {name: value for name, value in told.items() if name != "rest"})


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["limit"]["algorithm"])
@pytest.mark.parametrize("api", [Threads, Tasks])
def test_a_limiter_replays_its_original_row_for_row(api: type[Threads] | type[Tasks], case: dict[str, Any]) -> None:
    now = 0
    caller = api(law(case["limit"]), lambda: now)
    permits: dict[int, Any] = {}
    assert caller.limiter.limit == case["initial_limit"]
    for number, (operation, accepted, limit, in_flight) in enumerate(case["rows"]):
        verb, now, call = operation[:3]
        if verb == "acquire":
            try:
                permits[call] = caller.acquire()
            except ConcurrencyLimited:
                pass
            assert (call in permits) == accepted, f"row {number}"
        else:
            getattr(permits.pop(call), operation[3])()
        seen = caller.limiter.statistics()
        assert (seen.limit, seen.in_flight) == (limit, in_flight), f"row {number}"
    for permit in permits.values():
        permit.ignore()

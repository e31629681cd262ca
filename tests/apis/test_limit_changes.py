"""What both concurrency limiters tell of their limit: each change of it, and the baselines behind it."""

import logging
from contextlib import closing
from typing import Any

import pytest

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.concurrency import Sample
from batchlimit.concurrency.law import LawState
from batchlimit.laws import (
    AIMD,
    Fixed,
    Gradient,
    Gradient2,
    Knee,
    Periodic,
    Settable,
    Tumbling,
    Vegas,
    Watched,
    Windowed,
)
from tests.apis.test_concurrency import Blocking, Clock
from tests.sync.stage import until

Told = list[tuple[int, int]]


@pytest.fixture(params=[ConcurrencyLimiter, Blocking], ids=["threads", "asyncio"])
def limiter(request: pytest.FixtureRequest) -> Any:
    """What makes limiters."""
    return request.param


def test_a_listener_is_told_of_each_change_that_a_call_brings_and_of_no_other_call(limiter: Any) -> None:
    told: Told = []
    with closing(limiter(AIMD(initial=30, minimum=10, timeout=5))) as here:
        here.listen(lambda before, after: told.append((before, after)))
        here.acquire().success()
        here.acquire().drop()
        here.acquire().drop()
    assert told == [(30, 27), (27, 24)]


def test_a_listener_is_told_of_a_limit_that_an_operator_set_once_it_holds(limiter: Any) -> None:
    law, told = Settable(3), []
    with closing(limiter(law)) as here:
        here.listen(lambda before, after, why: told.append((before, after, why, here.limit)), why=True)
        for limit in (5, 5, 2):
            law.set_limit(limit)
    assert told == [(3, 5, "operator", 5), (5, 2, "operator", 2)]


def test_a_listener_that_asks_why_is_told(limiter: Any) -> None:
    told: list[tuple[int, int, str]] = []
    clock = Clock()
    with closing(limiter(AIMD(initial=30, minimum=10, timeout=5), clock=clock)) as here:
        here.listen(lambda *change: told.append(change), why=True)
        here.acquire().drop()
        permit = here.acquire()
        clock.pass_by(6)
        permit.success()
        for permit in [here.acquire() for _ in range(12)]:
            permit.success()
        seen = here.statistics()
    assert told == [(30, 27, "loss"), (27, 24, "late"), (24, 25, "room")]
    assert (seen.lowered_by, seen.raised_by) == ({"loss": 1, "late": 1}, {"room": 1})
    assert (seen.lowered, seen.raised) == (2, 1)


@pytest.mark.parametrize("wrapped", [lambda law: law, Watched])
def test_a_law_says_why_also_if_it_is_wrapped(wrapped: Any) -> None:
    class Moody(Fixed):
        @property
        def state(self) -> LawState:
            return LawState("mood", 1.5, 7)

        def update(self, sample: Sample) -> int:
            return 4

    told: list[str] = []
    with closing(ConcurrencyLimiter(wrapped(Moody(5)))) as here:
        here.listen(lambda before, after, why: told.append(why), why=True)
        here.acquire().success()
        seen = here.statistics()
    assert (told, seen.ratio, seen.settled_limit) == (["mood"], 1.5, 7)


class Trouble:
    """A watcher that always sees a reason."""

    name = "trouble"

    def poll(self) -> str:
        return "trouble"


def test_a_listener_is_told_of_what_the_watchers_bring(limiter: Any) -> None:
    told: list[tuple[int, int, str]] = []
    with closing(limiter(AIMD(initial=100, timeout=5), watchers=[Trouble()], every=0.001)) as here:
        here.listen(lambda *change: told.append(change), why=True)
        here.acquire().success()  # a drop is made of this call
        until(lambda: bool(told))
    assert told[0] == (100, 90, "watchers")


def test_a_listener_may_use_the_limiter(limiter: Any) -> None:
    law, entered = Settable(1), []
    with closing(ConcurrencyLimiter(law)) as here:

        def enter(before: int, after: int) -> None:
            here.acquire().success()
            entered.append(here.statistics().succeeded)

        here.listen(enter)
        law.set_limit(2)
    assert entered == [1]


def test_a_listener_that_raises_is_logged_and_holds_nobody_up(limiter: Any, caplog: pytest.LogCaptureFixture) -> None:
    law, told = Settable(1), []
    with closing(limiter(law)) as here, caplog.at_level(logging.ERROR):
        here.listen(lambda before, after: 1 / 0)
        here.listen(lambda before, after: told.append(after))
        law.set_limit(2)
        here.acquire().success()
    assert told == [2]
    assert [record.batchlimit_event for record in caplog.records] == ["limit.listener_failed"]  # type: ignore[attr-defined]


def test_a_listener_is_a_function(limiter: Any) -> None:
    with closing(limiter(Fixed(1))) as here, pytest.raises(TypeError, match="changed must be a function"):
        here.listen(5)


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (Vegas(), {"": 0.25}),
        (Gradient(), {"": 0.25}),
        (Gradient2(), {"": 0.25}),
        (Periodic(Vegas(), every=0.2), {"": 0.25}),
        (Tumbling(Vegas(), calls=1), {"": 0.25}),
        (Fixed(5), {}),
        (Windowed(AIMD(timeout=5)), {}),
    ],
)
def test_statistics_tell_the_baseline_of_a_law_also_of_one_that_is_wrapped(
    law: Any, expected: dict[str, float]
) -> None:
    clock = Clock()
    with closing(ConcurrencyLimiter(law, clock=clock)) as here:
        assert here.statistics().baselines == {}
        for _ in range(2):
            with here.acquire():
                clock.pass_by(0.25)
        assert here.statistics().baselines == expected


def test_statistics_tell_the_baseline_of_each_operation_that_the_default_law_knows() -> None:
    law, times = Knee(), {"read": 10_000_000, "write": 40_000_000}
    for number in range(4000):
        for operation, rtt in times.items():
            law.update(Sample(number * 5_000_000, rtt, 2, False, operation))
    with closing(AsyncConcurrencyLimiter(law)._locked_gate) as gate:
        baselines = gate.statistics(()).baselines
    assert baselines == pytest.approx({"read": 0.01, "write": 0.04})

"""What a plan adds up to, and that the processes of a fleet do it: their shares, their stay, their costs."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from batchlimit import Quota
from benchmarks.audited_fleet.fleet import Fleet, FleetLog, Row
from benchmarks.audited_fleet.limiter import AsyncWatchedLimiter, WatchedLimiter
from benchmarks.audited_fleet.plan import Api, Phase, Plan, burst, steady
from benchmarks.audited_fleet.trial import trial
from tests.depth import depth

PLAN = Plan("memory://", "1000/s burst 1000", "tested", 2, 1, (Phase(1.5, 400),))
"""Instances have time enough to make some calls, though the machine stalls."""


MARKS = "BATCHLIMIT_TEST_MARKS"


class Marked(WatchedLimiter):
    """Writes down when it is made, and when it is closed."""

    def close(self) -> None:
        super().close()
        mark("closed")


class AsyncMarked(AsyncWatchedLimiter):
    """The same for tasks."""

    async def close(self) -> None:
        await super().close()
        mark("closed")


def marked(plan: Plan) -> Marked:
    mark("made")
    return Marked.from_url(plan.url, plan.quota)


def marked_awaited(plan: Plan) -> AsyncMarked:
    mark("made")
    return AsyncMarked.from_url(plan.url, plan.quota)


def mark(event: str) -> None:
    with open(os.environ[MARKS], "a") as marks:
        marks.write(f"{event} {time.monotonic()}\n")


def marks(event: str) -> list[str]:
    """When it happened, in order."""
    lines = Path(os.environ[MARKS]).read_text().splitlines()
    return [line.removeprefix(f"{event} ") for line in lines if line.startswith(event)]


THREADS = replace(PLAN, limiter=marked)
TASKS = replace(PLAN, api=Api.ASYNC, async_limiter=marked_awaited)


def ignore(elapsed: float, rows: list[Row]) -> None:
    pass


def run(plan: Plan) -> FleetLog:
    with Fleet(plan) as fleet:
        return fleet.run(ignore)


def test_a_plan_adds_up() -> None:
    plan = replace(PLAN, phases=burst(Quota.parse("100/s"), 40, 4))
    assert plan.phases == (Phase(2, 10), Phase(2, 4000))
    assert plan.seconds == 4
    assert plan.calls == 20 + 8000
    assert plan.ends == [2, 4]


def test_demand_is_counted_in_tokens() -> None:
    assert steady(Quota.parse("100/s"), 2, 3, cost=10) == (Phase(3, 20),)
    assert replace(PLAN, costs=(1, 2, 9)).tokens == pytest.approx(600 * 4)


def test_an_absent_process_makes_no_calls() -> None:
    plan = replace(PLAN, phases=(Phase(1, 100), Phase(1, 1000)), weights=(3, 1), presence=((0, 2), (0.5, 1.25)))
    assert plan.share(0) == 0.75
    assert plan.calls == pytest.approx(75 + 750 + 25 * 0.5 + 250 * 0.25)
    assert [plan.vanishes(process) for process in range(2)] == [False, True]


@pytest.mark.parametrize(
    "wrong",
    [
        {"weights": (1.0,)},
        {"weights": (0.0, 0.0)},
        {"weights": (2.0, -1.0)},
        {"presence": ((0.0, 1.0),) * 3},
        {"costs": ()},
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(wrong: dict[str, tuple[float, ...]]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(PLAN, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("plan", depth([THREADS], [THREADS, TASKS]))
def test_a_process_that_joins_late_is_silent_until_then(plan: Plan) -> None:
    log = run(replace(plan, presence=((0, 1.5), (0.5, 1.5))))
    first, late = log.processes
    assert min(call.before for call in late.admitted) >= log.start + 0.5
    assert sum(late.offered[:50]) == 0 < sum(first.offered)
    assert sum(late.offered) <= 1.0 * 200 + 1, "it does not catch up on what it has missed"
    assert float(marks("made")[1]) >= log.start + 0.5, "nor is its limiter there before it"


@pytest.mark.parametrize("plan", depth([TASKS], [THREADS, TASKS]))
def test_a_process_that_vanishes_gives_nothing_back_and_leaves_its_log(plan: Plan) -> None:
    """Two limiters were made, and only the one of the process that stayed was closed."""
    log = run(replace(plan, presence=((0, 1.0), (0, 1.5))))
    gone, stayed = log.processes
    assert log.start + 1.0 <= gone.ended
    assert log.start + 1.5 <= stayed.ended
    assert sum(gone.offered[:100]) == sum(gone.offered) > 0
    assert len(marks("made")) == 2
    assert len(marks("closed")) == 1


@pytest.fixture(autouse=True)
def _marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARKS, str(tmp_path / "marks"))


@pytest.mark.parametrize("api", depth([Api.THREADS], list(Api)))
def test_decisions_that_waited_for_the_store_are_counted_separately(api: Api) -> None:
    shown = trial(replace(PLAN, url="embedded://", processes=1, api=api), ignore)
    assert 0 < shown.waits < shown.decisions
    assert shown.miss_latency.p50_us > shown.hit_latency.p50_us

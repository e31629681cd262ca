"""What is said about the event loop is what happened on it."""

import asyncio
import math
import selectors

import pytest

from benchmarks import heartbeat
from benchmarks.heartbeat import Laps, Seen, observe
from benchmarks.stall import Trivial, stall
from tests.servers import Server
from tests.sync.stage import Clock


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_WARM_UP", 0.1)


def test_a_lap_is_from_one_look_to_the_next_without_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def look(selector: selectors.DefaultSelector, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        clock.now += 10
        return []

    monkeypatch.setattr(selectors.DefaultSelector, "select", look)
    laps = Laps(clock)
    for worked in (2, 3):
        clock.now += worked
        laps.select()
    assert list(laps.take()) == [2, 3]
    assert len(laps.take()) == 0


def test_every_call_is_counted_though_others_come_while_it_waits() -> None:
    made, seen = 0, Seen()

    async def call(key: str) -> bool:
        nonlocal made
        made += 1
        await asyncio.sleep(0.001)
        return True

    laps = Laps()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(laps)) as runner:
        runner.run(observe(call, 0.1, laps, seen))
    assert seen.calls == seen.admitted == made > 0
    assert len(seen.late) > 0
    assert len(seen.laps) > 0


def test_the_control_waits_as_often_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", note)
    control = Trivial(0.25)

    async def call() -> list[bool]:
        return [await control.try_acquire("key") for _ in range(20)]

    assert asyncio.run(call()) == [True] * 20
    assert waits == [0.05] * 5


def test_all_of_it_runs_and_says_a_number_for_everything(valkey: Server) -> None:
    figures = list(stall(valkey.url, 0.1, 1))
    assert len({figure.name for figure in figures}) == len(figures)
    assert all(math.isfinite(figure.value) for figure in figures)
    assert [figure.name for figure in figures if figure.at_most is not None] == [
        "stall: caused by the limiter, p99.9",
        "stall: caused by the limiter without a client, p99.9",
    ]

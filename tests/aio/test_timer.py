"""One timer for all that is due: it rings for each thing at its time, and keeps no more than it has to."""

import asyncio
import logging
import math
from collections import Counter
from typing import Any

import pytest

from batchlimit.aio.home import Home
from batchlimit.base.waking import AT_ONCE
from tests.aio.loop import virtual_loop


class Thing:
    def __init__(self, due: float, rung: list[float]) -> None:
        self.due = due
        self.rung = rung

    def ring(self) -> None:
        self.rung.append(virtual_loop().now)


def timer() -> Home:
    nobody: Any = None
    home = Home(nobody, virtual_loop().time, nobody)
    home.move_to(asyncio.get_running_loop())
    return home


def planned() -> int:
    return sum(not timer.cancelled() for timer in virtual_loop()._scheduled)  # type: ignore[attr-defined]


async def test_each_is_rung_for_at_its_time_in_whatever_order_it_came() -> None:
    found, rung = timer(), []  # type: ignore[var-annotated]
    for seconds in (3.0, 1.0, 2.0, 1.0, 0.0):
        found.watch(Thing(1000.0 + seconds, rung))
        assert planned() == 1
    await asyncio.sleep(5.0)
    assert rung == pytest.approx([1000.0, 1001.0, 1001.0, 1002.0, 1003.0])
    assert planned() == 0


async def test_what_has_another_time_by_now_is_not_rung_for_at_the_old_one() -> None:
    found, rung = timer(), []  # type: ignore[var-annotated]
    sooner, never = Thing(1003.0, rung), Thing(1002.0, rung)
    found.watch(sooner)
    found.watch(never)
    sooner.due, never.due = 1001.0, math.inf
    found.watch(sooner)
    await asyncio.sleep(5.0)
    assert rung == pytest.approx([1001.0])


async def test_what_is_rung_for_may_be_watched_again() -> None:
    found, rung = timer(), []  # type: ignore[var-annotated]

    class Again(Thing):
        def ring(self) -> None:
            super().ring()
            if len(self.rung) < 4:
                self.due = virtual_loop().now + 1.0
                found.watch(self)

    found.watch(Again(1001.0, rung))
    await asyncio.sleep(10.0)
    assert rung == pytest.approx([1001.0, 1002.0, 1003.0, 1004.0])


async def test_one_that_fails_is_logged_and_the_others_are_rung_for(caplog: pytest.LogCaptureFixture) -> None:
    found, rung = timer(), []  # type: ignore[var-annotated]

    class Broken(Thing):
        def ring(self) -> None:
            raise ZeroDivisionError

    found.watch(Broken(1001.0, rung))
    found.watch(Thing(1001.0, rung))
    with caplog.at_level(logging.ERROR, "batchlimit"):
        await asyncio.sleep(2.0)
    assert len(rung) == 1
    assert "looking after" in caplog.text


async def test_stale_plans_do_not_pile_up() -> None:
    """A hundred thousand callers with a timeout of a minute, all served at once: their plans are thrown out."""
    found, rung = timer(), []  # type: ignore[var-annotated]
    for _ in range(100_000):
        served = Thing(1060.0, rung)
        found.watch(served)
        served.due = math.inf
    assert len(found._plans) <= 128
    found.watch(Thing(1001.0, rung))
    await asyncio.sleep(100.0)
    assert len(rung) == 1


async def test_of_many_that_are_due_at_once_a_few_are_rung_for_in_a_turn_of_the_loop_in_order() -> None:
    turns, order = Counter[int](), []

    class Numbered:
        def __init__(self, number: int) -> None:
            self.number, self.due = number, 1001.0

        def ring(self) -> None:
            turns[virtual_loop().turns] += 1
            order.append(self.number)

    found = timer()
    for number in range(1000):
        found.watch(Numbered(number))
    await asyncio.sleep(1.5)
    assert order == list(range(1000))
    assert max(turns.values()) <= AT_ONCE


async def test_of_many_stale_plans_that_are_due_at_once_a_few_hundred_are_thrown_out_in_a_turn_of_the_loop() -> None:
    looks, rung = Counter[int](), []  # type: ignore[var-annotated]

    class Looked:
        is_stale = False

        @property
        def due(self) -> float:
            if self.is_stale:
                looks[virtual_loop().turns] += 1
            return math.inf if self.is_stale else 1001.0

        @due.setter
        def due(self, _: float) -> None:
            raise AssertionError("it is rung for")

        def ring(self) -> None:
            raise AssertionError("it is rung for")

    found = timer()
    for _ in range(20_000):
        found.watch(Looked())
    Looked.is_stale = True
    found.watch(Thing(1001.5, rung))
    await asyncio.sleep(2.0)
    assert rung == [1001.5]
    assert max(looks.values()) <= 1000


async def test_a_stopped_keeper_rings_no_more() -> None:
    found, rung = timer(), []  # type: ignore[var-annotated]
    found.watch(Thing(1001.0, rung))
    found.stop()
    await asyncio.sleep(5.0)
    assert (rung, planned()) == ([], 0)


async def test_a_loop_that_forgot_to_ring_does_so_with_what_is_watched_next() -> None:
    """As one does where a signal handler raises just then: no key was looked after from then on."""
    found, rung = timer(), []  # type: ignore[var-annotated]
    found.watch(Thing(1001.0, rung))
    assert found._timer is not None
    found._timer.cancel()
    await asyncio.sleep(2.5)
    assert rung == []
    found.watch(Thing(1009.0, rung))
    await asyncio.sleep(10.0)
    assert rung == pytest.approx([1002.5, 1009.0])

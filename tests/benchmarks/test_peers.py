"""The peers' table cannot rot: every contender admits and refuses, every part runs, every figure finds its place."""

import asyncio
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.distance import distant
from benchmarks.peer.awaited import AWAITED
from benchmarks.peer.bench import Bench, Part
from benchmarks.peer.brief import brief
from benchmarks.peer.contender import FLOOR, OURS, AwaitedOpening, Contender, Opening, Terms
from benchmarks.peer.crew import Crew
from benchmarks.peer.page import page
from benchmarks.peer.parts import PARTS
from benchmarks.peer.record import as_json, machine
from benchmarks.peer.tally import Tally
from benchmarks.peer.targets import figures
from benchmarks.peer.threaded import SINGLE, THREADED
from tests.depth import only_deep
from tests.servers import Server

_RATE = 5
_ENOUGH = 200
"""Calls that a limit of 5/s cannot all admit, however slow this machine is just now."""


def _installed(contender: Contender[Any]) -> Contender[Any]:
    if contender.version is None:
        pytest.skip(f"{contender.package} is not installed")
    return contender


@pytest.mark.parametrize("contender", [*THREADED, *SINGLE], ids=lambda each: each.name)
def test_a_contender_admits_what_it_may_and_refuses_the_rest(
    valkey: Server, prefix: str, contender: Contender[Opening]
) -> None:
    with _installed(contender).open(Terms(valkey.url, prefix, _RATE, _RATE, 1)) as line:
        function, arguments = line()
        answers = [function(*arguments) for _ in range(_ENOUGH)]
    assert answers[0] is True
    limits = contender.name != FLOOR and "1000 keys" not in contender.name
    assert (False in answers) == limits


@pytest.mark.parametrize("contender", AWAITED, ids=lambda each: each.name)
def test_so_does_one_that_is_awaited(valkey: Server, prefix: str, contender: Contender[AwaitedOpening]) -> None:
    waits = contender.package == "aiolimiter"  # it refuses nobody

    async def ask() -> list[bool]:
        async with contender.open(Terms(valkey.url, prefix, _RATE, _RATE, 1)) as line:
            function, arguments = line()
            return [await function(*arguments) for _ in range(1 if waits else _ENOUGH)]

    _installed(contender)
    answers = asyncio.run(ask())
    assert answers[0] is True
    assert (False in answers) == (contender.name != FLOOR and not waits)


@pytest.fixture
def bench(valkey: Server) -> Iterator[Bench]:
    with Crew(1) as crew, distant(valkey.url, 0.001) as far:
        yield Bench(crew, valkey.url, far, factor=0.04)


def _small(part: Part) -> Part:
    """As few runs as tell whether it works: a peer where it is installed, and one setting."""
    told = [each for each in part.contenders if each.name in (FLOOR, OURS, "limits, fixed window", "bare INCR")]
    told = told or [*part.contenders[2:]]
    last = list(part.settings)[-1]
    setting = next((each for each in ("64 tasks", "8 threads") if each in part.settings), last)
    return replace(part, contenders=told, settings={setting: part.settings[setting]})


@only_deep
def test_every_part_runs_and_every_figure_finds_its_place(bench: Bench) -> None:
    told: list[str] = []
    for part in PARTS.values():
        small = _small(part)
        small.carry_out(bench, 1, told.append)
        assert len(bench.book.names(part.name)) == small.runs
    assert len(told) == len(bench.book.rounds)
    found = list(figures(bench.book))
    assert all(math.isfinite(each.value) for each in found)
    assert [each.verdict for each in found if each.name.startswith("excess")] == ["ok"]
    text = page(bench.book, found, machine("a server"))
    assert brief(bench.book) in text
    assert "nan" not in text
    rounds = json.loads(as_json(bench.book, found, "a machine"))["rounds"]
    assert len(rounds) == len(told)


def test_the_audit_sees_what_was_admitted_between_two_looks_and_warming_up() -> None:
    terms, tally = Terms("", "key", 10, 10, 1), Tally()
    tally.add(0.0, 9, 8, 0.1)
    tally.begin(0.1)
    tally.add(0.1, 9, 4, 0.2)
    assert (tally.decisions, tally.admitted) == (9, 4)
    assert tally.used(terms) == pytest.approx(1.0)
    assert tally.excess(terms) == 0.0
    tally.add(0.2, 1, 1, 0.2)
    assert tally.excess(terms) == pytest.approx(1.0)
    assert tally.excess(terms, keys=2) == 0.0
    assert tally.used(terms, keys=2) == pytest.approx(13 / 24)

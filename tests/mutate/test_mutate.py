"""What notices a change: a test that fails, hangs or dies; and which changes reach functions that are there already."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutate.changes import Mutation, Site, sites
from tests.mutate.children import in_children
from tests.mutate.patches import Patches

SECONDS: dict[Callable[[], object], float] = {signal.pause: 0.1}


def told(*questions: Callable[[], object]) -> dict[Callable[[], object], bool]:
    return dict(in_children([*questions], 2, lambda each: bool(each()), lambda each: SECONDS.get(each, 60.0)))


def fails() -> bool:
    return True


def passes() -> bool:
    return False


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def ends_itself() -> None:
    os._exit(9)


def test_a_change_survives_only_where_all_tests_pass() -> None:
    survives = told(fails, passes, dies, ends_itself, signal.pause)
    assert [each for each, lives in survives.items() if lives] == [passes]
    assert len(survives) == 5


@pytest.fixture(scope="module")
def changes() -> list[Mutation]:
    found = [each.mutation() for each in sites(Path("batchlimit/keyspace/timer_heap.py"))]
    return [each for each in found if each is not None]


def test_a_change_of_a_function_reaches_whoever_holds_it(changes: list[Mutation]) -> None:
    from batchlimit.keyspace.timer_heap import TimerHeap

    held, patches = TimerHeap.clear, Patches([])
    dropped = next(each for each in changes if each.before.startswith("def clear") and "pass" in each.after)
    code = held.__code__
    try:
        made(patches, dropped)
        assert held.__code__ is not code
    finally:
        held.__code__ = code


def made(patches: Patches, change: Mutation) -> None:
    make = patches.of(change)
    assert make is not None
    make()


def changed(path: str, text: str) -> Mutation:
    found = map(Site.mutation, sites(Path("batchlimit") / path))
    return next(each for each in found if each is not None and text in f"{each.before} -> {each.after}")


def test_a_change_of_a_constant_reaches_whoever_imported_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from batchlimit.reservoir import fallback, rule_in_force

    for each in [each for each in sys.modules.values() if vars(each).get("LEASE") is fallback.LEASE]:
        monkeypatch.setattr(each, "LEASE", fallback.LEASE)
    made(Patches([]), changed("reservoir/fallback.py", "LEASE = 0.5 -> LEASE = 1.5"))
    assert [vars(each)["LEASE"] for each in (fallback, rule_in_force)] == [1.5, 1.5]


def test_a_change_of_a_default_reaches_whoever_holds_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    from batchlimit.reservoir.sizing import Demand

    monkeypatch.setattr(Demand.__init__, "__defaults__", (0.0,))
    made(Patches([]), changed("reservoir/sizing.py", "-> def __init__(self, now: float, rate: float=1.0)"))
    assert Demand(0.0).rate == 1.0

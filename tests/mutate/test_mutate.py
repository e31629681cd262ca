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


def cannot_be_asked() -> None:
    raise LookupError


def test_a_change_survives_only_where_all_tests_pass() -> None:
    survives = told(fails, passes, dies, ends_itself, signal.pause)
    assert [each for each, lives in survives.items() if lives] == [passes]
    assert len(survives) == 5


def test_a_mistake_of_the_judge_is_no_verdict() -> None:
    with pytest.raises(RuntimeError, match="could not ask"):
        told(cannot_be_asked)


@pytest.fixture(scope="module")
def changes() -> list[Mutation]:
    found = [each.mutation() for each in sites(Path("batchlimit/keyspace/timer_heap.py"))]
    return [each for each in found if each is not None]


def test_a_change_of_a_function_reaches_whoever_holds_it_and_that_of_a_constant_needs_an_import(
    changes: list[Mutation],
) -> None:
    from batchlimit.keyspace.timer_heap import TimerHeap

    held, patches = TimerHeap.clear, Patches([])
    by_text = {f"{each.before} -> {each.after}": each for each in changes}
    dropped = next(each for text, each in by_text.items() if text.startswith("def clear") and "pass" in text)
    assert patches.of(by_text["_MOVES = 8 -> _MOVES = 9"]) is None
    code = held.__code__
    try:
        patches.make(patches.of(dropped) or {})
        assert held.__code__ is not code
    finally:
        held.__code__ = code


def test_a_change_reaches_a_module_that_nobody_has_imported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    path, name = Path("batchlimit/rules/files/toml.py"), "batchlimit.rules.files.toml"
    monkeypatch.delitem(sys.modules, name, raising=False)
    patches = Patches([path])
    read = sys.modules[name].read
    change = next(each for each in map(Site.mutation, sites(path)) if each is not None and "def read" in each.before)
    before = read.__code__
    patches.make(patches.of(change) or {})
    assert read.__code__ is not before


def test_objects_that_set_themselves_up_when_they_are_asked_for_their_class_are_left_alone() -> None:
    class Lazy:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            raise LookupError("nothing is configured")

    lazy = Lazy()
    Patches([])
    assert type(lazy) is Lazy

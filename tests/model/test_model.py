"""Small worlds are explored to their end, and each broken rule is found there.

More of them: python -m tests.model --deep --jobs 2
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from tests.depth import DEEP
from tests.model.broken import BREAKS
from tests.model.explore import explore, story, world_of
from tests.model.shapes import AnyShape, Size, shapes_of
from tests.model.world import Event

_SIZE: Size = "deep" if DEEP else "usual"


@pytest.mark.parametrize("name", shapes_of(_SIZE))
def test_no_history_breaks_a_rule(name: str) -> None:
    shape = shapes_of(_SIZE)[name]
    found = explore(shape)
    assert found.wrong is None, "\n".join(["", *story(shape, found.wrong[0])])
    assert found.is_whole


@pytest.mark.parametrize("rule", [rule for rule in BREAKS if DEEP or BREAKS[rule].shape in shapes_of("usual")])
def test_a_broken_rule_is_found(rule: str) -> None:
    shape = shapes_of("all")[BREAKS[rule].shape]
    with BREAKS[rule].made():
        assert explore(shape).wrong is not None


def test_a_counter_example_is_the_shortest_and_reads_as_a_story() -> None:
    shape, rule = shapes_of("usual")["three wait at two"], "more is granted than is there"
    with BREAKS[rule].made():
        found = explore(shape)
        assert found.wrong is not None
        told = story(shape, found.wrong[0])
    assert told == STORY


STORY = """
 0.000000  a caller of 1 comes to A that waits
 0.000000  A spends 1
 0.000000  the bucket spends 1 for A; it has 0 of burst 1
 0.000000  the answer reaches A
 0.000000  A admits a caller of 1
 0.000000  a caller of 1 comes to A that waits
 0.000000  A spends 1
 0.000000  the bucket refuses 1 for A; it has 0 of burst 1
 0.000000  the answer reaches A
 0.099999  0.099999 s go by
 0.099999  A asks for 1
 0.099999  the bucket hears that A asks (2: need 1, want 1, held 0), and grants 1; it has -1e-05 of burst 1
 0.099999  the answer reaches A
 0.099999  A admits a caller of 1
 0.100000  1e-06 s go by
 0.100000  a caller of 1 comes to A that waits
 0.100000  A asks for 1
 0.100000  the bucket hears that A asks (3: need 1, want 1, held 0), and grants 1; it has -1 of burst 1
 0.100000  the answer reaches A
 0.100000  A admits a caller of 1
           Violation: 1 more than burst + rate x T were admitted
""".strip("\n").splitlines()


_ALIKE = ["an override that ends", "forked, leases", "one slot, forked", "one slot, forgotten", "two keys by slot"]


@pytest.mark.parametrize("name", ["interrupted", "urgent, interrupted", *_ALIKE])
def test_worlds_that_are_equal_go_on_alike(name: str) -> None:
    """Two histories lead to one state only if the same may follow, and lead to equal states again."""
    shape, merged = shapes_of("usual")[name], 0
    histories: dict[int, list[Event]] = {}
    for history, key in walked(shape, 600):
        if (other := histories.setdefault(key, history)) is not history and len(history) > 3:
            merged += 1
            assert after(shape, history) == after(shape, other), (history, other)
    assert merged > 30


@pytest.mark.parametrize("name", ["forgotten", "another quota", *_ALIKE])
def test_a_world_goes_back_to_what_it_was(name: str) -> None:
    shape = shapes_of("usual")[name]
    for history, key in islice(walked(shape, 600), 0, None, 10):
        world = played(shape, history)
        _, photograph = world.photograph()
        for event in list(world.events()):
            world.happen(event)
            world.go_back(photograph)
            assert world.photograph_anew() == key, (history, event)


def walked(shape: AnyShape, most: int) -> Iterator[tuple[list[Event], int]]:
    """Histories, shortest first, with the keys of the states that they lead to: of a state also those that merge."""
    ahead, seen = deque[list[Event]]([[]]), set[int]()
    while ahead and len(seen) < most:
        history = ahead.popleft()
        key = played(shape, history).photograph()[0]
        yield history, key
        if key not in seen:
            seen.add(key)
            ahead.extend([*history, event] for event in played(shape, history).events())


def played(shape: AnyShape, history: list[Event]) -> Any:
    world = world_of(shape)
    for event in history:
        world.happen(event)
    return world


def after(shape: AnyShape, history: list[Event]) -> list[int]:
    """The keys of all that may follow."""
    events = list(played(shape, history).events())
    return sorted(played(shape, [*history, event]).photograph()[0] for event in events)

"""Breadth first: every state that a world may be in is visited once, by the shortest history that leads there."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.model.shapes import AnyShape, SlotShape
from tests.model.slots import SlotWorld
from tests.model.world import Event, World


@dataclass
class Found:
    """What an exploration came to. `wrong` is the shortest history that breaks a rule, and what it breaks."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    seconds: float = 0.0
    is_whole: bool = True
    wrong: tuple[list[Event], BaseException] | None = None


def world_of(shape: AnyShape) -> "World | SlotWorld":
    """Return a new world of this kind."""
    return SlotWorld(shape) if isinstance(shape, SlotShape) else World(shape)


def explore(
    shape: AnyShape, most_states: int = 10_000_000, told: Callable[[Found], None] = lambda found: None
) -> Found:
    """Visit every state, or as many as these; stop at the first broken rule."""
    began, found = time.perf_counter(), Found()
    world: Any = world_of(shape)
    key, first = world.photograph()
    before: list[tuple[int, Event | None]] = [(0, None)]  # of each state, which one led to it, and how
    ended: set[int] = set()
    waits: tuple[int, Exception] | None = None  # the state from which somebody waits for ever, told if nothing is worse
    visited, ahead = {key}, deque([(0, 0, first)])
    while ahead and found.wrong is None:
        number, found.depth, photograph = ahead.popleft()
        world.go_back(photograph)
        events, event = list(world.events()), None
        try:
            if is_calm := waits is None and (not events or world.is_settled):
                waits = _waits(world, ended, number)
            for at, event in enumerate(events):
                if at or is_calm:
                    world.go_back(photograph)
                world.happen(event)
                found.steps += 1
                key, after = world.photograph()
                if key in visited:
                    continue
                if len(before) >= most_states:
                    found.is_whole = False
                    continue
                visited.add(key)
                ahead.append((len(before), found.depth + 1, after))
                before.append((number, event))
        except Exception as error:  # noqa: BLE001  whatever the rules raise is a fault of theirs
            found.wrong = [*_history(before, number), *([event] if event else [])], error
        if number % 1000 == 0:
            told(found)
    if waits is not None and found.wrong is None:
        found.wrong = _history(before, waits[0]), waits[1]
    found.states, found.seconds = len(before), time.perf_counter() - began
    return found


def _waits(world: Any, ended: set[int], number: int) -> tuple[int, Exception] | None:
    """Let all come to its end from a state; return what is wrong with that."""
    try:
        world.calm_down(ended)
    except Exception as error:  # noqa: BLE001  see there
        return number, error
    return None


def _history(before: list[tuple[int, Event | None]], number: int) -> list[Event]:
    """The events that led to a state."""
    events: list[Event] = []
    number, event = before[number]
    while event is not None:
        events.append(event)
        number, event = before[number]
    return events[::-1]


def story(shape: AnyShape, history: list[Event], *, calm: bool = True) -> list[str]:
    """Tell a history line by line, up to the rule that it breaks."""
    world = world_of(shape)
    world.story = []
    try:
        for event in history:
            world.happen(event)
        if calm:
            world.calm_down(set())
    except Exception as error:  # noqa: BLE001  see there
        world.story.append(f"           {type(error).__name__}: {error}")
    return world.story

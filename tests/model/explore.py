"""Breadth first: every state that a world may be in is visited once, by the shortest history that leads there."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tests.model.shapes import Shape
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


def explore(shape: Shape, most_states: int = 10_000_000, told: Callable[[Found], None] = lambda found: None) -> Found:
    """Visit every state, or as many as these; stop at the first broken rule."""
    began, found, world = time.perf_counter(), Found(), World(shape)
    key, first = world.photograph()
    before: list[tuple[int, Event | None]] = [(0, None)]  # of each state, which one led to it, and how
    ended: set[int] = set()
    visited, ahead = {key}, deque([(0, 0, first)])
    while ahead and found.wrong is None:
        number, found.depth, photograph = ahead.popleft()
        world.go_back(photograph)
        events, event = list(world.events()), None
        try:
            if not events:
                world.calm_down(ended)
            for event in events:
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
    found.states, found.seconds = len(before), time.perf_counter() - began
    return found


def _history(before: list[tuple[int, Event | None]], number: int) -> list[Event]:
    """The events that led to a state."""
    events: list[Event] = []
    number, event = before[number]
    while event is not None:
        events.append(event)
        number, event = before[number]
    return events[::-1]


def story(shape: Shape, history: list[Event], *, calm: bool = True) -> list[str]:
    """Tell a history line by line, up to the rule that it breaks."""
    world = World(shape)
    world.story = []
    try:
        for event in history:
            world.happen(event)
        if calm:
            world.calm_down(set())
    except Exception as error:  # noqa: BLE001  see there
        world.story.append(f"           {type(error).__name__}: {error}")
    return world.story

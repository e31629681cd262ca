"""Breadth first: every state that a world may be in is visited once, by the shortest history that leads there."""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.model.many import ManyWorld
from tests.model.shapes import AnyShape, ManyShape, SlotShape
from tests.model.slots import SlotWorld
from tests.model.world import Event, World
from tests.simulation.watch import Violation

LONGEST = 60_000_000
"""Nobody waits for longer than this (us) once nothing goes wrong any more."""


@dataclass
class Found:
    """What an exploration came to. `wrong` is the shortest history that breaks a rule, and what it breaks."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    seconds: float = 0.0
    is_whole: bool = True
    wrong: tuple[list[Event], BaseException] | None = None


def world_of(shape: AnyShape) -> "World | SlotWorld | ManyWorld":
    """Return a new world of this kind."""
    if isinstance(shape, ManyShape):
        return ManyWorld(shape)
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
    calm = Calm()
    visited, ahead = {key: 0}, deque([(0, 0, first)])
    while ahead and found.wrong is None and not calm.is_wrong:
        number, found.depth, photograph = ahead.popleft()
        world.go_back(photograph)
        events, event, moved = list(world.events()), None, False
        likely = world.calm_event() if not events or world.is_settled else None
        try:
            if (not events or world.is_settled) and likely not in events:
                moved = True
                calm.end(number, world, ended)
            waits, now = world.waits if likely in events else "", world.now
            for event in events:
                if moved:
                    world.go_back(photograph)
                moved = True
                world.happen(event)
                found.steps += 1
                key, after = world.photograph()
                if event == likely and waits:
                    calm.steps[number] = waits, key, world.now - now
                if key in visited:
                    continue
                if len(before) >= most_states:
                    found.is_whole = False
                    continue
                visited[key] = len(before)
                ahead.append((len(before), found.depth + 1, after))
                before.append((number, event))
        except Exception as error:  # noqa: BLE001  whatever the rules raise is a fault of theirs
            found.wrong = [*_history(before, number), *([event] if event else [])], error
        if number % 1000 == 0:
            told(found)
    if found.wrong is None and (waits_on := calm.wrong(visited)) is not None:
        found.wrong = _history(before, waits_on[0]), waits_on[1]
    found.states, found.seconds = len(before), time.perf_counter() - began
    return found


class Calm:
    """What follows where nothing goes wrong any more: each state in which a caller waits leads to one where none does.

    What happens then is one of the events of that state, so the exploration has been there: `steps` says who waits,
    the key of the state that follows, and after how many us. Where there is no such event, the world is let go to its
    end at once.
    """

    def __init__(self) -> None:
        self.steps: dict[int, tuple[str, int, int]] = {}
        self._wrong: dict[int, Exception] = {}

    @property
    def is_wrong(self) -> bool:
        """Whether a state is known that does not end well: those that come later have longer histories."""
        return bool(self._wrong)

    def end(self, number: int, world: Any, ended: set[int]) -> None:
        """Let all come to its end from a state."""
        try:
            world.calm_down(ended)
        except Exception as error:  # noqa: BLE001  see `explore`
            self._wrong.setdefault(number, error)

    def wrong(self, numbers: dict[int, int]) -> tuple[int, Exception] | None:
        """Return the first state that does not end well, and why."""
        lasting: dict[int, float] = dict.fromkeys(self._wrong, 0.0)
        for number, (waits, _, _) in sorted(self.steps.items()):
            if self._lasting(number, numbers, lasting) > LONGEST:
                self._wrong[number] = Violation(f"a caller waits at {waits} for ever")
        return min(self._wrong.items(), default=None)

    def _lasting(self, number: int, numbers: dict[int, int], known: dict[int, float]) -> float:
        """For how long (us) somebody waits from a state on."""
        path: list[int] = []
        while number in self.steps and number not in known:
            known[number] = math.inf  # if this is a circle
            path.append(number)
            number = numbers.get(self.steps[number][1], -1)
        lasts = known.get(number, 0)
        for each in reversed(path):
            lasts = known[each] = lasts + self.steps[each][2]
        return lasts


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
    world, told = world_of(shape), list[str]()
    world.tell(told)
    try:
        for event in history:
            world.happen(event)
        if calm:
            world.calm_down(set())
    except Exception as error:  # noqa: BLE001  see there
        told.append(f"           {type(error).__name__}: {error}")
    return told

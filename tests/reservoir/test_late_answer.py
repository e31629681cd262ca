"""A request that the store does not answer: which callers fail, which ask again, and when. Each case is one story."""

import math

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.reservoir.waiter import Admit, Fail, Fetch, Refuse, Verdict, Wait, Waiter
from tests.reservoir.entry import Entry

LATE = StoreUnavailable("did not answer in time")
GIVEN_UP = CircuitOpen("circuit open")
BROKEN = BucketUnavailable("the key holds something else")

Scene = tuple[float, str, object]
"""At which instant (s), what happens, and what the caller is told."""


class Story:
    """One caller in line, who arrived at 0.0, and what happens to it."""

    def __init__(self, deadline: float) -> None:
        self.entry = Entry()
        self.waiter = self.entry.join(1, deadline)
        self.other: Waiter | None = None
        self.fetch: Fetch | None = None

    def play(self, at: float, event: str) -> object:
        match event:
            case "step":
                return self.told(self.entry.step(self.waiter, at))
            case "late" | "given up" | "broken":
                assert self.fetch is not None
                error = {"late": LATE, "given up": GIVEN_UP, "broken": BROKEN}[event]
                self.entry.reservoir.failed(self.fetch, error, at)
            case "granted" | "denied":
                assert self.fetch is not None
                self.entry.grant(self.fetch, at, *((1,) if event == "granted" else (0,)))
            case "a newcomer asks":
                self.other = self.entry.join(1, math.inf)
                return self.told(self.entry.step(self.other, at))
            case _:
                raise LookupError(event)
        return self.told(self.waiter.verdict)

    def told(self, step: Verdict | Wait | Fetch | None) -> object:
        match step:
            case Fetch():
                self.fetch = step
                return "ask again" if step.repeated else "ask"
            case Wait(seconds):
                return seconds if seconds is None else round(seconds, 6)
            case Fail(error):
                return error
            case Admit():
                return "admitted"
            case Refuse():
                return "refused"
            case _:
                return None


STORIES: dict[str, tuple[float, list[Scene]]] = {
    "a caller without time fails at once": (NO_WAIT, [(0.0, "step", "ask"), (0.05, "late", LATE)]),
    "a caller with time asks again and is served": (
        5.0,
        [(0.0, "step", "ask"), (0.05, "late", None), (0.05, "step", "ask again"), (0.06, "granted", "admitted")],
    ),
    "a caller without a deadline asks again and is served": (
        math.inf,
        [(0.0, "step", "ask"), (0.05, "late", None), (0.05, "step", "ask again"), (0.06, "granted", "admitted")],
    ),
    "after a request that fails at once it waits until 50 ms after that was sent": (
        math.inf,
        [(0.0, "step", "ask"), (0.01, "late", None), (0.01, "step", 0.04), (0.05, "step", "ask again")],
    ),
    "a deadline that comes before the next request says that the store is silent": (
        0.03,
        [(0.0, "step", "ask"), (0.01, "late", None), (0.01, "step", 0.02), (0.03, "step", LATE)],
    ),
    "a deadline that passes during the next request says that the store is silent": (
        0.08,
        [(0.0, "step", "ask"), (0.05, "late", None), (0.05, "step", "ask again"), (0.08, "step", LATE)],
    ),
    "a deadline that passes after the store has answered again is a refusal": (
        1.5,
        [
            (0.0, "step", "ask"),
            (0.05, "late", None),
            (0.05, "step", "ask again"),
            (0.06, "denied", None),
            (0.07, "step", "ask"),
            (1.5, "step", "refused"),
        ],
    ),
    "an open circuit ends the wait": (
        math.inf,
        [(0.0, "step", "ask"), (0.05, "late", None), (0.05, "step", "ask again"), (0.05, "given up", GIVEN_UP)],
    ),
    "an error of this bucket alone ends the wait": (math.inf, [(0.0, "step", "ask"), (0.01, "broken", BROKEN)]),
    "it outlasts as many failures as the circuit breaker allows": (
        math.inf,
        [
            (0.0, "step", "ask"),
            (0.05, "late", None),
            (0.05, "step", "ask again"),
            (0.11, "late", None),
            (0.11, "step", "ask again"),
            (0.17, "late", None),
            (0.17, "step", "ask again"),
            (0.18, "granted", "admitted"),
        ],
    ),
    "a caller that joins after the failure asks at once, and the first is served first": (
        math.inf,
        [
            (0.0, "step", "ask"),
            (0.01, "late", None),
            (0.01, "step", 0.04),
            (0.02, "a newcomer asks", "ask again"),
            (0.02, "step", None),
            (0.03, "granted", "admitted"),
        ],
    ),
}


@pytest.mark.parametrize(("deadline", "scenes"), STORIES.values(), ids=STORIES)
def test_a_late_answer(deadline: float, scenes: list[Scene]) -> None:
    story = Story(deadline)
    assert [story.play(at, event) for at, event, _ in scenes] == [expected for *_, expected in scenes]

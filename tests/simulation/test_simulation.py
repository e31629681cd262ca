"""Hundreds of short scenarios, and the proof that each rule's breaking would be noticed.

More of them: python -m tests.simulation --seeds 100000 --jobs 2
"""

import pytest

from batchlimit.reservoir import requests
from tests.depth import DEEP, depth
from tests.simulation.breaks import BREAKS
from tests.simulation.run import Run
from tests.simulation.scenario import draw
from tests.simulation.shrink import failure, shortest, trace
from tests.simulation.watch import Violation

_CHUNK = 25
_IN_SHADOW = range(75, 76)
"""The first seed in which an operator has a key in shadow mode admit beyond its limit."""


@pytest.mark.parametrize(
    "seeds", [range(first, first + _CHUNK) for first in range(0, depth(50, 2000), _CHUNK)] + [_IN_SHADOW], ids=str
)
def test_no_rule_is_broken(seeds: range) -> None:
    for seed in seeds:
        try:
            Run(draw(seed)).play()
        except Exception as error:
            raise AssertionError(f"seed {seed}: python -m tests.simulation --first {seed} --seeds 1") from error


@pytest.mark.parametrize("seeds", [range(first, first + _CHUNK) for first in range(0, depth(25, 500), _CHUNK)], ids=str)
def test_no_rule_is_broken_where_small_bursts_are_prefetched(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """As at many: the bursts here are smaller than what is worth a look."""
    monkeypatch.setattr(requests, "_MANY", 2)
    monkeypatch.setattr(requests, "_LONG", 0.0)
    test_no_rule_is_broken(seeds)


def test_a_seed_replays_exactly() -> None:
    stories = []
    for _ in range(2):
        run = Run(draw(9), trace=True)
        run.play()
        stories.append((run.steps, run.watch.trace))
    assert stories[0] == stories[1]
    assert stories[0][0] > 100


# Where to look first for what few seeds notice, or what takes long to tell shortly.
_HINTS = {"copies": 1256, "expiry": 689, "sharing": 82, "overrides": 583, "ends": 99, "shares": 279}
_HINTS |= {"freedom": 227, "shadow": 27, "fill": 11, "revisions": 19, "sent": 24, "begins": 25}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_rule_is_noticed_and_its_story_is_short(broken: str) -> None:
    hint = _HINTS.get(broken, 0)
    with BREAKS[broken]():
        seed = next((seed for seed in range(hint, hint + 2000) if failure(draw(seed)) is not None), None)
        assert seed is not None
        assert isinstance(failure(draw(seed)), Violation)  # and no crash, which tells nothing of the rule
        if not DEEP and broken != next(iter(BREAKS)):
            return  # to shorten a story takes much longer than to find one
        whole = draw(seed)
        short = shortest(whole)
        assert len(short.events) <= min(10, len(whole.events))
        assert "Violation" in trace(short)[-1]

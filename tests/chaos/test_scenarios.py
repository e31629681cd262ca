"""The short form of scripts/chaos: under load something breaks, and the promise holds but where state was lost.

The load of each runs for a fixed time, which is the experiment. What is asserted of waits is generous: the machine may
stall, and scripts/chaos prints what they are.
"""

import math

import pytest

from tests.chaos import scenario
from tests.chaos.crew import Crew
from tests.chaos.play import SHORT, play
from tests.chaos.scenario import Scenario

DEADLINE = 0.05
"""What a call of the store may take (s), unless told otherwise."""


@pytest.mark.parametrize("scenario", scenario.SHORT, ids=str)
def test_the_promise_holds_through_it(scenario: Scenario, crew: Crew) -> None:
    with scenario.place(crew) as stage:
        row = play(scenario, stage, SHORT)
    assert row.errors == ()
    assert row.excess <= scenario.allowed
    assert row.recovery < math.inf

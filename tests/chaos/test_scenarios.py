"""The short form of scripts/chaos: under load something breaks, and the promise holds but where state was lost.

The load of each runs for a fixed time, which is the experiment. How long callers waited scripts/chaos prints; here it
is held against what the rules allow, and for how long the machine stood still.
"""

import math

import pytest

from tests.chaos import scenario
from tests.chaos.crew import Crew
from tests.chaos.fault import killed, network
from tests.chaos.play import SHORT, play
from tests.chaos.row import Row
from tests.chaos.scenario import BESIDE, Scenario
from tests.depth import depth
from tests.relay import Relay

_WITH_DEEP = (
    "connections are half closed",
    "killed and at once there again, empty",
    "the server is restarted with its data",
)
"""Each is much like another one of the short form."""
_REMEMBERED = 1.0
"""Seconds: a process that is without the store for longer may have forgotten the bucket that was lost."""


def played(scenario: Scenario, crew: Crew) -> Row:
    """Play it, and assert what is true of all."""
    with scenario.place(crew) as stage:
        row = play(scenario, stage, SHORT)
    assert row.kept, row
    assert scenario.loses or not row.losses, row
    assert row.losses or not scenario.loses or max(row.seconds, row.stalled) > _REMEMBERED, row
    return row


@pytest.mark.parametrize(
    "scenario", [each for each in scenario.SHORT if each.name not in depth(_WITH_DEEP, ())], ids=str
)
def test_the_promise_holds_through_it(scenario: Scenario, crew: Crew) -> None:
    assert played(scenario, crew).fallback == 0


def test_instances_that_admit_their_shares_admit_the_limit_together(crew: Crew) -> None:
    """Four processes, a store that is away for two seconds: neither four times the limit, nor a quarter of it."""
    away = Scenario("away", network(Relay.drop), "local", seconds=2.0, relayed=True, allowed=BESIDE)
    row = played(away, crew)
    assert row.share >= 0.9 - row.stalled
    assert row.fallback > 0
    assert row.unavailable == 0


def test_instances_that_admit_everything_refuse_nobody_for_long(crew: Crew) -> None:
    """What is refused all the same is what the store had refused just before."""
    away = Scenario("killed", killed, "open", seconds=0.6, allowed=math.inf, loses=True)
    row = played(away, crew)
    assert row.refused < 0.1 * row.admitted
    assert row.fallback > 0
    assert row.unavailable == 0

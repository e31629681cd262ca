"""What counts begin with, and which of them tell two statistics apart."""

from dataclasses import astuple, replace
from typing import Any

from batchlimit.reservoir.statistics import Health, PolicyStatistics, Statistics

NOTHING = Statistics(keys=0, admitted=0, refused=0, calls=0, held=0, waiting=0)
OTHER: Any = "another histogram"


def test_counts_begin_at_nothing_and_the_store_is_there() -> None:
    assert list(astuple(NOTHING)[:-2]) == [0] * 11 + [True] + [0] * 3
    assert set(astuple(PolicyStatistics())[:-1]) == {0}
    assert Health()[:-1] == (0, 0, True)


def test_how_long_something_took_and_parts_of_a_sum_tell_nothing_apart() -> None:
    assert NOTHING == replace(NOTHING, durations=OTHER) == replace(NOTHING, policies=OTHER)
    assert replace(NOTHING, owed=1) != NOTHING
    assert PolicyStatistics() == PolicyStatistics(waits=OTHER)

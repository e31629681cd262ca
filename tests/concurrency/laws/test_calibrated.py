"""Laws that learn of the machine."""

import pytest

from batchlimit.concurrency.law import Calibrated
from batchlimit.concurrency.laws import AIMD, Fixed, Gitaly, Watched
from tests.concurrency.laws.world import Listener, drop, sample

QUIET: list[str] = []


@pytest.mark.parametrize(
    ("periods", "limits"),
    [
        ([QUIET, QUIET], [16, 17]),
        ([["memory"]], [7]),
        ([["memory", "cpu", "memory"]], [7]),  # several reasons are one decrease
        ([["cpu"], ["cpu"], QUIET, ["cpu"]], [7, 5, 6, 5]),
        ([QUIET] * 10, [16, 17, 18, 19, 20, 20, 20, 20, 20, 20]),
    ],
)
def test_each_period_is_one_step(periods: list[list[str]], limits: list[int]) -> None:
    law = Gitaly(maximum=20)
    assert [law.calibrate(events, 0) for events in periods] == limits
    assert law.limit == limits[-1]


def test_calls_do_not_move_it() -> None:
    law = Gitaly()
    assert [law.update(each) for each in (sample(), drop(), sample(10_000))] == [15, 15, 15]
    assert repr(law) == "<Gitaly 15 of 5..100>"


def test_a_watched_law_hears_its_last_call_again_as_a_dropped_one_for_a_period_with_a_reason() -> None:
    inner = Listener()
    law = Watched(inner)
    assert law.calibrate(["cpu"], 0) == 1, "there was no call yet"
    law.update(sample(10))
    assert law.update(sample(20)) == law.calibrate((), 0) == 3
    assert law.calibrate(["memory", "cpu"], 0) == law.limit == 4
    assert law.calibrate(["memory"], 0) == 5
    assert inner.told == [sample(10), sample(20), drop(20), drop(20)]


def test_they_can_be_told_from_laws_that_hear_of_calls_alone() -> None:
    assert isinstance(Gitaly(), Calibrated)
    assert isinstance(Watched(Fixed(3)), Calibrated)
    assert not isinstance(AIMD(timeout=5), Calibrated)
    assert isinstance(Watched(AIMD(timeout=5)).law, AIMD)
    assert repr(Watched(Fixed(3))) == "<Watched Fixed(3)>"

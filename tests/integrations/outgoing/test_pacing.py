"""How long calls are held back by what is left at upstream."""

from typing import Any

import pytest

from batchlimit.integrations.pacing import Pacer, pause_of
from batchlimit.integrations.told import Allowance


@pytest.mark.parametrize(
    ("left", "seconds"),
    [
        (Allowance(0), 0.0),
        (Allowance(0, 100), 0.0),
        (Allowance(0, None, 30), 0.0),
        (Allowance(0, 0, 30), 0.0),
        (Allowance(0, 100, 0), 0.0),
        # a window of a minute, half of it over
        (Allowance(50, 100, 30, 60), 0.0),
        (Allowance(80, 100, 30, 60), 0.0),
        (Allowance(30, 100, 30, 60), 12.0),
        (Allowance(3, 100, 30, 60), 28.2),
        (Allowance(2, 100, 30, 60), 30.0),
        (Allowance(0, 100, 30, 60), 30.0),
        (Allowance(30, 100, 90, 60), 42.0),
        (Allowance(120, 100, 30, 60), 0.0),
        # at once or bit by bit, nobody knows
        (Allowance(20, 100, 30), 0.0),
        (Allowance(10, 100, 30), 3.0),
        (Allowance(2, 100, 30), 30.0),
        # bit by bit: 100/s up to 100, then 1/s up to 60
        (Allowance(20, 100, 0.8, refills=True), 0.0),
        (Allowance(10, 100, 0.9, refills=True), 0.3),
        (Allowance(0, 100, 1.0, refills=True), 0.4),
        (Allowance(5, 60, 55, refills=True), 0.0),
        (Allowance(4, 60, 56, refills=True), 6.0),
    ],
    ids=str,
)
def test_how_long_nothing_is_sent(left: Allowance, seconds: float) -> None:
    assert pause_of("requests", left) == pytest.approx(seconds)


def test_what_is_not_counted_in_calls_is_low_by_its_part_alone() -> None:
    tokens = Allowance(10_000, 60_000, 50, refills=True)
    assert pause_of("tokens", tokens) == pytest.approx(14)
    assert pause_of("requests", tokens) == 0.0


LITTLE = {"requests": Allowance(30, 100, 30, 60)}
"""Twelve seconds too early."""


def test_a_pause_is_said_once_and_one_that_ends_later_again() -> None:
    pacer = Pacer(None, 600)
    assert pacer.pauses("a", LITTLE, now=100.0) == {"a": pytest.approx(12)}
    assert pacer.pauses("a", LITTLE, now=100.0) == {}
    assert pacer.pauses("b", LITTLE, now=100.0) == {"b": pytest.approx(12)}
    assert pacer.pauses("a", {"requests": Allowance(20, 100, 29, 60)}, now=101.0) == {"a": pytest.approx(17)}
    assert pacer.pauses("a", {"requests": Allowance(19, 100, 11, 60)}, now=119.0) == {}


def test_no_pause_is_longer_than_what_is_believed() -> None:
    assert Pacer(None, 5).pauses("a", LITTLE, now=0.0) == {"a": 5}
    assert Pacer(None, 600).pauses("a", {"tokens": Allowance(0, 100, 86400, refills=True)}, now=0.0) == {"a": 60}


def test_what_is_told_unchanged_after_its_pause_is_stale() -> None:
    pacer, stale = Pacer(None, 600), {"tokens": Allowance(0, 100, 86400, refills=True)}
    assert pacer.pauses("a", stale, now=100.0) == {"a": 60}
    assert pacer.pauses("a", stale, now=130.0) == {"a": 60}, "of a call that was under way"
    for later in (160.0, 161.0, 3600.0):
        assert pacer.pauses("a", stale, now=later) == {}
    assert pacer.pauses("a", {"tokens": Allowance(1, 100, 86400, refills=True)}, now=3601.0) == {"a": 60}


def test_what_changes_is_no_stale_news() -> None:
    pacer = Pacer(None, 600)
    for now, remaining in ((100.0, 30), (120.0, 29), (140.0, 28)):
        assert pacer.pauses("a", {"requests": Allowance(remaining, 100, 30, 60)}, now=now)


def test_what_is_too_short_to_tell_anybody_is_not_said() -> None:
    assert Pacer(None, 5).pauses("a", {"requests": Allowance(49.98, 100, 30, 60)}, now=0.0) == {}


def test_the_scarcest_kind_counts() -> None:
    both = LITTLE | {"tokens": Allowance(0, 100, 40, 60), "other": Allowance(100, 100, 1, 60)}
    assert Pacer(None, 600).pauses("a", both, now=0.0) == {"a": 40}


def test_each_kind_may_have_a_key_and_others_are_left_alone() -> None:
    both: Any = LITTLE | {"tokens": Allowance(0, 100, 40, 60)}
    assert Pacer({"tokens": "tpm"}, 600).pauses("a", both, now=0.0) == {"tpm": 40}


def test_of_an_end_in_whole_seconds_the_earliest_counts() -> None:
    """It is rounded up: of 9.1 and of 8.2 s upstream says 10 and 9."""
    pacer = Pacer(None, 600)
    assert pacer.pauses("a", {"requests": Allowance(100, 100, 10, 10)}, now=0.0) == {}
    assert pacer.pauses("a", {"requests": Allowance(90, 100, 9, 10)}, now=0.9) == {}
    assert pacer.pauses("a", {"requests": Allowance(80, 100, 9, 10)}, now=1.0) == {"a": pytest.approx(0.9)}
    assert pacer.pauses("b", {"requests": Allowance(80, 100, 9, 10)}, now=1.0) == {"b": pytest.approx(1.0)}


def test_the_next_window_has_another_end() -> None:
    pacer = Pacer(None, 600)
    assert pacer.pauses("a", {"requests": Allowance(90, 100, 9, 10)}, now=0.0) == {}
    assert pacer.pauses("a", {"requests": Allowance(50, 100, 10, 10)}, now=9.5) == {"a": pytest.approx(5)}


def test_what_is_known_of_many_keys_is_forgotten_once_it_is_over() -> None:
    pacer = Pacer(None, 600)
    for n in range(3000):
        pacer.pauses(f"key {n}", LITTLE, now=float(n))
    assert max(len(pacer._ends), len(pacer._resets), len(pacer._reasons)) < 1100

"""What a limiter refuses to begin with, and how long a pause or a turn may be."""

import math
from typing import Any

import pytest

from batchlimit.reservoir.options import Options, check_pause, check_turn

TEN_YEARS = 10 * 365 * 86400.0


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        ((0, 0, 1), (0.0, 0.0, 1.0)),
        ((2, 3.5, 4), (2.0, 3.5, 4.0)),
        ((1e300, 1e300, 1e300), (TEN_YEARS, TEN_YEARS, TEN_YEARS)),
    ],
)
def test_a_turn_is_ten_years_away_at_most(turn: Any, told: Any) -> None:
    assert check_turn(*turn) == told
    assert check_pause(1e300, "") == TEN_YEARS


@pytest.mark.parametrize(
    ("turn", "error"),
    [
        ((-1, 0, 1), "wait must be at least 0 seconds"),
        ((0, math.inf, 1), "spacing must be at least 0 seconds, and finite"),
        ((0, 0, 0), "longest must be more than 0 seconds"),
        ((0, 0, -1), "longest must be more than 0 seconds"),
        ((True, 0, 1), "wait must be a number of seconds"),
        ((0, "1", 1), "spacing must be a number of seconds"),
    ],
)
def test_a_turn_without_a_time_is_refused(turn: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        check_turn(*turn)


@pytest.mark.parametrize("options", [{}, {"max_keys": 1}, {"revision": 2**53 - 1}, {"idle_after": 0}])
def test_bounds_of_options_are_options(options: Any) -> None:
    made = Options(**options)
    assert (made.max_keys, made.revision) == (options.get("max_keys", 100_000), options.get("revision", 0))


def test_options_have_the_defaults_that_a_limiter_names() -> None:
    assert Options() == Options(
        idle_after=10.0, fill="share", weight=1, max_keys=100_000, deadline=0.05, on_failure="closed", revision=0
    )


@pytest.mark.parametrize(("seconds", "why"), [(0, ""), (True, ""), (1.0, "two\nlines")])
def test_a_pause_without_a_time_or_of_two_lines_is_refused(seconds: Any, why: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        check_pause(seconds, why)

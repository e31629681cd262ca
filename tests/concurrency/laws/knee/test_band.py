"""How long a line may be: of a share of the limit, and of the square root of it."""

import pytest

from batchlimit.concurrency.laws.knee.baseline import RatioBand


@pytest.mark.parametrize(
    ("limit", "allowed"), [(1, 3.0), (3, 3.0), (4, 2.5), (9, 1.667), (16, 1.429), (25, 1.316), (100, 1.3)]
)
def test_small_limits_are_allowed_a_longer_line(limit: float, allowed: float) -> None:
    assert RatioBand(1.3).allowed(limit) == pytest.approx(allowed, abs=0.001)


@pytest.mark.parametrize(
    ("ratio", "has_room", "has_little_room", "once", "lasting"),
    [
        (0.7, True, True, 1.0, 1.0),
        (1.0, True, True, 1.0, 1.0),
        (1.2, True, True, 1.0, 1.0),
        (1.25, False, True, 1.0, 1.0),
        (1.3, False, False, 1.0, 1.0),
        (1.31, False, False, 0.95, 0.996),
        (1.6, False, False, 0.95, 0.901),
        (2.0, False, False, 0.95, 0.806),
        (9.0, False, False, 0.95, 0.6),
    ],
)
def test_what_a_ratio_makes_of_a_limit_of_a_hundred(
    ratio: float, has_room: bool, has_little_room: bool, once: float, lasting: float
) -> None:
    band = RatioBand(1.3)
    assert band.has_room(ratio, 100) == has_room
    assert band.has_room(ratio, 100, for_few=True) == has_little_room
    assert band.factor(ratio, 100, lasts=False) == once
    assert band.factor(ratio, 100, lasts=True) == pytest.approx(lasting, abs=0.001)


def test_of_two_limits_at_the_same_ratio_the_larger_shrinks_and_the_smaller_grows() -> None:
    band = RatioBand(1.3)
    assert band.has_room(1.8, 4)
    assert band.factor(1.8, 16, lasts=False) < 1

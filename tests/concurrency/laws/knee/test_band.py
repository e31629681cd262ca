"""How long a line may be: of a share of the limit, and of the square root of it."""

import pytest

from batchlimit.concurrency.laws.knee.band import Band


@pytest.mark.parametrize(
    ("limit", "allowed"), [(1, 5.0), (2, 5.0), (4, 2.5), (9, 1.667), (16, 1.429), (25, 1.316), (100, 1.3)]
)
def test_small_limits_are_allowed_a_longer_line(limit: float, allowed: float) -> None:
    assert Band(1.3).allowed(limit) == pytest.approx(allowed, abs=0.001)


@pytest.mark.parametrize(
    ("ratio", "has_room", "once", "lasting"),
    [
        (0.7, True, 1.0, 1.0),
        (1.0, True, 1.0, 1.0),
        (1.1, True, 1.0, 1.0),
        (1.2, False, 1.0, 1.0),
        (1.3, False, 1.0, 1.0),
        (1.31, False, 0.95, 0.95),
        (1.6, False, 0.95, 0.79),
        (2.0, False, 0.95, 0.707),
        (9.0, False, 0.95, 0.6),
    ],
)
def test_what_a_ratio_makes_of_a_limit_of_a_hundred(ratio: float, has_room: bool, once: float, lasting: float) -> None:
    band = Band(1.3)
    assert band.has_room(ratio, 100) == has_room
    assert band.factor(ratio, 100, lasts=False) == once
    assert band.factor(ratio, 100, lasts=True) == pytest.approx(lasting, abs=0.001)

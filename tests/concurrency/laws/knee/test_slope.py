"""The slope of throughput over concurrency: 1 without a queue, 0 with one, none where points do not tell."""

import math
from random import Random

import pytest

from batchlimit.concurrency.laws.knee.slope import Point, Slope, between


def point(n: float, x: float, calls: int = 100) -> Point:
    return Point(calls, math.log(n), math.log(x))


@pytest.mark.parametrize(
    ("points", "value"),
    [
        ([], None),
        ([(10, 100), (20, 200)], None),
        ([(10, 100), (20, 200), (40, 400)], 1.0),
        ([(40, 100), (20, 100), (10, 100)], 0.0),
        ([(20, 100)] * 8, None),
        ([(20, 100), (21, 90), (22, 110)], None),
        # Beyond the knee and below it: what counts is where N is now.
        ([(80, 100), (60, 100), (40, 100), (20, 100), (10, 50), (5, 25)], 1.0),
    ],
)
def test_it_is_of_as_few_of_the_last_points_as_tell(points: list[tuple[float, float]], value: float | None) -> None:
    slope = Slope()
    for n, x in points:
        slope.add(point(n, x))
    assert slope.value == (None if value is None else pytest.approx(value))


def test_points_of_few_calls_have_to_lie_further_apart() -> None:
    many, few = Slope(), Slope()
    for n in (10, 15, 20):
        many.add(point(n, n, calls=100))
        few.add(point(n, n, calls=10))
    assert many.value == pytest.approx(1.0)
    assert few.value is None


@pytest.mark.parametrize("truth", [0.0, 1.0])
def test_noise_seldom_turns_one_into_the_other(truth: float) -> None:
    random, wrong, told = Random(1), 0, 0
    for _ in range(1000):
        slope = Slope()
        for n in (40, 28, 20):
            slope.add(point(n, 100 * n**truth * random.gauss(1.0, 0.7 / 10)))
        if slope.value is not None:
            told += 1
            wrong += (slope.value > 0.6) != (truth > 0.6)
    assert told == 1000
    assert wrong < 20


def test_two_points_tell_unless_they_are_close() -> None:
    assert between(point(20, 100), point(12, 100)) == 0.0
    assert between(point(20, 100), point(12, 60)) == pytest.approx(1.0)
    assert between(point(20, 100), point(19, 60)) is None


def test_what_is_forgotten_tells_nothing() -> None:
    slope = Slope()
    for n in (10, 20, 40):
        slope.add(point(n, n))
    slope.clear()
    assert slope.value is None

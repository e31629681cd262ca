import pytest

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import AIMD, AverageWindow, PercentileWindow, Window, Windowed
from tests.concurrency.laws.world import MS, Listener, drop, sample


def filled(window: Window, samples: list[Sample]) -> Window:
    for each in samples:
        window.add(each)
    return window


def opened(law: Listener, window: Window | None = None, **given: float) -> Windowed:
    """A window that lasts until 1001 ms at least; the first call has closed, and wasted, one of its own."""
    windowed = Windowed(law, window=window, **given)  # type: ignore[arg-type]
    windowed.update(sample(1, at=0))
    return windowed


def test_an_average_window_sums_up_its_calls() -> None:
    window = filled(AverageWindow(), [sample(3, 2), drop(1), Sample(0, 5_000_001, 4)])
    assert window.take() == (3, 1 * MS, 3 * MS, 1000, True)
    assert filled(window, [Sample(0, 7, 2), Sample(0, 8, 1)]).take() == (2, 7, 7, 2, False)


@pytest.mark.parametrize(("part", "rtt"), [(0.5, 2), (0.999, 3), (0.01, 1), (0.34, 1), (0.49, 1), (0.51, 2), (0.84, 3)])
def test_a_percentile_window_takes_the_nearest_rank(part: float, rtt: int) -> None:
    samples = [Sample(0, 3, 9), Sample(0, 1, 7), Sample(0, 2, 8, True)]
    window = filled(PercentileWindow(part, 10), samples)
    assert window.take() == (3, 1, rtt, 9, True)
    assert filled(window, [Sample(0, 7, 2)]).take() == (1, 7, 7, 2, False)


def test_a_full_percentile_window_hears_of_nothing_more() -> None:
    window = filled(PercentileWindow(0.9, 2), [Sample(0, 3, 1), Sample(0, 4, 2), Sample(0, 1, 9, True)])
    assert window.take() == (2, 3, 4, 2, False)


@pytest.mark.parametrize(
    ("shortest", "given", "lasts"),
    [
        (2, {}, 1000),
        (700, {}, 1000),
        (200, {"max_window": 30.0}, 1000),
        (700, {"max_window": 30.0}, 1400),
        (700, {"max_window": 1.3}, 1300),
        (2, {"min_window": 0.1}, 100),
        (2, {"min_window": 0.1, "max_window": 0.1}, 100),
    ],
)
def test_a_window_lasts_twice_its_shortest_call_within_bounds(
    shortest: float, given: dict[str, float], lasts: float
) -> None:
    law = Listener()
    windowed = Windowed(law, **given)  # type: ignore[arg-type]
    windowed.update(sample(shortest))
    for _ in range(10):
        windowed.update(sample(1, at=0))
    windowed.update(sample(1, at=shortest + lasts - 1))
    assert law.told == []
    windowed.update(sample(1.001, at=shortest + lasts - 1))
    assert len(law.told) == 1


def test_the_least_rtt_is_a_tenth_of_a_millisecond_unless_told() -> None:
    law = Listener()
    windowed = opened(law)
    for _ in range(9):
        windowed.update(Sample(0, 99_999, 1))
        windowed.update(Sample(0, 100_000, 1))
    windowed.update(Sample(2000 * MS, 100_000, 1))
    assert law.told == [Sample(2000 * MS, 100_000, 1)]


def test_it_shows_the_law_and_the_window() -> None:
    windowed = Windowed(AIMD(timeout=5))
    assert repr(windowed) == "<Windowed <AIMD 20 of 20..200>: <AverageWindow of 0>>"
    assert isinstance(windowed.law, AIMD)

import pytest

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import Gradient2, square_root
from tests.concurrency.laws.world import MS, drop, limits, sample


def test_the_average_is_a_mean_first_and_then_follows_slowly() -> None:
    law = Gradient2(long_window=100, warmup=10)

    def average(ns: int) -> float:
        law.update(Sample(0, ns, 0))
        return law.long_rtt_ns

    assert [average(value) for value in range(10, 20)] == [10 + half / 2 for half in range(10)]
    assert average(100) == 14.5 * (1 - 2 / 101) + 100 * (2 / 101)


def usual(tolerance: float = 1.0, minimum: int = 1, maximum: int = 200, queue_size: int = 4) -> Gradient2:
    """Twenty calls of which each took 10 ms up to now, so often that one more hardly counts."""
    law = Gradient2(
        initial=20,
        minimum=minimum,
        maximum=maximum,
        queue_size=queue_size,
        warmup=1,
        long_window=2**31 - 1,
        tolerance=tolerance,
    )
    law.update(sample(10, in_flight=0))
    return law


@pytest.mark.parametrize(
    ("told", "tolerance", "estimate"),
    [
        (sample(10), 1.0, 20.8),  # 0.8 x 20 + 0.2 x (20 + 4)
        (sample(5), 1.0, 20.8),
        (sample(12.5), 1.0, 20.0),  # 0.2 x (16 + 4)
        (sample(20), 1.0, 18.8),  # 0.2 x (10 + 4)
        (sample(1000), 1.0, 18.8),  # no less than half
        (sample(15), 1.5, 20.8),
        (sample(18.75), 1.5, 20.0),
        (sample(20, in_flight=9), 1.0, 20.0),  # less than half was in use
        (sample(10, in_flight=9), 1.0, 20.0),
        (sample(10, in_flight=10), 1.0, 20.8),
        (drop(10), 1.0, 20.8),  # drops say nothing
        (drop(20), 1.0, 18.8),
    ],
)
def test_a_step_follows_the_gradient(told: Sample, tolerance: float, estimate: float) -> None:
    law = usual(tolerance)
    assert law.update(told) == int(law.estimated_limit) == law.limit
    assert law.estimated_limit == pytest.approx(estimate, abs=1e-6)


def test_bounds_hold_from_the_first_step() -> None:
    assert limits(usual(minimum=19, maximum=21), [sample(10)] * 4) == [20, 21, 21, 21]
    low = usual(minimum=19)
    assert limits(low, [sample(10_000)] * 3) == [19, 19, 19]
    assert low.estimated_limit == 19
    assert isinstance(low.estimated_limit, float)
    assert limits(Gradient2(initial=500), [sample(10, in_flight=0), sample(10)]) == [500, 200]


def test_the_average_learns_from_calls_that_leave_the_limit() -> None:
    law = Gradient2()
    limits(law, [sample(10, in_flight=0), sample(20, in_flight=0)])
    assert law.long_rtt_ns == 15 * MS


@pytest.mark.parametrize(("first", "then", "average"), [(30, 10, 20.0), (31, 10, 19.475), (100, 10, 52.25)])
def test_an_average_over_twice_the_rtt_is_brought_down(first: float, then: float, average: float) -> None:
    law = Gradient2(warmup=1, long_window=3)
    limits(law, [sample(first), sample(then, in_flight=0)])
    assert law.long_rtt_ns == average * MS


def test_the_warm_up_undoes_what_was_taken_off() -> None:
    law = Gradient2()
    limits(law, [sample(90), sample(10)])
    assert law.long_rtt_ns == 50 * MS * 0.95
    law.update(sample(20))
    assert law.long_rtt_ns == 40 * MS


def test_the_queue_may_be_a_function_of_the_whole_limit() -> None:
    law = Gradient2(initial=100, smoothing=1.0, queue_size=square_root)
    assert limits(law, [sample(10)] * 3) == [110, 120, 130]
    law = Gradient2(initial=100, smoothing=0.5, queue_size=lambda limit: limit - 98.5)
    assert limits(law, [sample(10)] * 2) == [100, 101]
    assert law.estimated_limit == 101.5  # of 100.75, the whole calls

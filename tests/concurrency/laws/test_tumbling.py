"""Windows that end by count or by time: which samples a law gets of them."""

import statistics

import pytest

from batchlimit.concurrency import Sample
from batchlimit.laws import Tumbling
from tests.concurrency.laws.world import SECOND, Listener, sample


def call(end: float, rtt: float = 0.0, in_flight: int = 1, dropped: bool = False) -> Sample:
    """A call of so many seconds that ends then."""
    return sample(1000 * rtt, in_flight, dropped, at=1000 * (end - rtt))


def test_every_so_many_calls_are_one_sample() -> None:
    law = Listener()
    tumbling = Tumbling(law, calls=3, statistic=statistics.median)
    limits = [tumbling.update(call(end, rtt)) for end, rtt in ((1, 0.1), (2, 0.5), (3, 0.2), (4, 9), (5, 8), (6, 7))]
    assert limits == [1, 1, 2, 2, 2, 3]
    assert [each.rtt_ns for each in law.told] == [SECOND // 5, 8 * SECOND]
    assert law.told[0].start_ns == round(2.8 * SECOND)


@pytest.mark.parametrize(
    ("every", "ends", "decisions"),
    [
        (None, [0, 100, 200, 201], [0, 0, 1, 1]),
        (1.0, [0, 0.5, 1.0, 1.5], [0, 0, 1, 1]),
        (1.0, [0, 1.0], [0, 1]),
        (1.0, [0, 5.0, 5.9, 6.0], [0, 1, 1, 2]),
        (1.0, [0, 0.1, 0.2, 0.3, 0.4, 0.5], [0, 0, 1, 1, 1, 2]),
        (1.0, [0, 0.1, 0.9, 1.0, 1.8, 2.0], [0, 0, 1, 1, 1, 2]),
    ],
)
def test_a_window_ends_by_count_or_by_time(every: float | None, ends: list[float], decisions: list[int]) -> None:
    law = Listener()
    tumbling = Tumbling(law, calls=3, every=every)
    assert [tumbling.update(call(end)) - 1 for end in ends] == decisions


def test_a_call_of_no_true_duration_is_left_out() -> None:
    law = Listener()
    tumbling = Tumbling(law, calls=1)
    assert tumbling.update(Sample(0, -1, 1)) == 1
    assert tumbling.update(Sample(0, 2**53 + 1, 1)) == 1
    assert tumbling.update(Sample(0, 0, 1)) == 2


def test_a_statistic_that_raises_leaves_the_window_to_be_decided_later() -> None:
    def fails_once(rtts: object) -> float:
        broken.append(1)
        if len(broken) == 1:
            raise ValueError("once")
        return 1.0

    broken: list[int] = []
    law = Listener()
    tumbling = Tumbling(law, calls=1, statistic=fails_once)
    with pytest.raises(ValueError, match="once"):
        tumbling.update(call(1))
    assert tumbling.update(call(2)) == 2


def test_a_window_is_not_of_no_time() -> None:
    with pytest.raises(ValueError, match="every must be from 1e-09"):
        Tumbling(Listener(), every=0)

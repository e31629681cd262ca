import pytest

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import Vegas
from tests.concurrency.laws.world import MS, drop, limits, sample


def ten() -> Vegas:
    """Ten calls, of which three to six may wait, and calls of 10 ms where none does."""
    law = Vegas(initial=10, maximum=20, alpha=3, beta=6)
    law.update(sample(10))
    return law


@pytest.mark.parametrize(
    ("told", "limit"),
    [
        (sample(10, in_flight=11), 16),  # nobody waits
        (sample(11), 16),  # 0.9 wait, counted as one
        (sample(11.2), 11),  # two
        (sample(12), 11),
        (sample(12.5), 11),  # two, exactly
        (sample(12.6), 10),  # three
        (sample(14), 10),
        (sample(25), 10),  # six
        (sample(26), 9),  # seven
        (sample(50), 9),
        (sample(10, in_flight=4), 10),  # less than half was in use
        (sample(50, in_flight=4), 10),
        (sample(10, in_flight=5), 16),
        (drop(10), 9),
        (sample(10, in_flight=0, dropped=True), 9),
        (sample(9), 10),  # faster than any: it only teaches
        (drop(9), 10),
    ],
)
def test_a_step_follows_the_queue(told: Sample, limit: int) -> None:
    law = ten()
    assert law.limit == 10
    assert law.update(told) == limit
    assert law.limit == limit
    assert law.estimated_limit == limit


def test_the_bounds_are_one_and_the_maximum() -> None:
    assert limits(ten(), [sample()] * 3) == [16, 20, 20]
    assert limits(ten(), [drop()] * 11)[-3:] == [1, 1, 1]


def test_without_an_own_measure_it_steps_by_the_logarithm() -> None:
    large = Vegas(initial=10_000, maximum=20_000)
    assert limits(large, [sample(10, 6000), sample(10, 6000), drop()]) == [10_000, 10_024, 10_020]
    # at 200, a logarithm of 2: up to 2 in the queue is none, below 6 few, 6 to 12 all right
    middling = [(10.1, 212), (10.15, 202), (10.2, 202), (10.25, 202), (10.3, 200), (10.6, 200), (10.7, 198)]
    for ms, limit in middling:
        assert limits(Vegas(initial=200), [sample(10), sample(ms)])[-1] == limit, ms


def test_smoothing_takes_a_part_of_the_step() -> None:
    law = Vegas(initial=100, maximum=200, smoothing=0.5, decrease=lambda limit: limit / 2)
    assert limits(law, [sample(10), sample(50), sample(50)]) == [100, 75, 56]
    assert law.estimated_limit == 56.25


def test_a_limit_that_holds_is_not_smoothed() -> None:
    law = Vegas(initial=12, maximum=50, smoothing=0.3, alpha=3, beta=6)
    limits(law, [sample(10), sample(10)])
    before = law.estimated_limit
    assert before != 0.7 * before + 0.3 * before  # the rounding would show
    limits(law, [sample(14), sample(10, in_flight=1)])
    assert law.estimated_limit == before


def test_measures_may_be_functions_of_the_whole_limit() -> None:
    asked: list[float] = []

    def measure(limit: float) -> float:
        asked.append(limit)
        return 5

    law = Vegas(initial=25, smoothing=0.5, threshold=measure, beta=measure, alpha=measure)
    limits(law, [sample(10), sample(10)])
    assert law.estimated_limit == 27.5  # up by beta
    limits(law, [sample(14)])
    assert law.estimated_limit == 27.0  # eight wait: down by one
    assert asked == [25, 25, 27, 27, 27]
    assert all(isinstance(each, int) for each in asked)
    law = Vegas(initial=25, alpha=9, increase=lambda up: up + 9)
    assert limits(law, [sample(10), sample(12)]) == [25, 34]


def test_it_probes_after_as_many_samples_as_told_whatever_the_load() -> None:
    jitters = iter([0.5, 0.75, 0.5])
    law = Vegas(initial=4, probe_multiplier=3, jitter=lambda: next(jitters))
    noload = []
    for ms in range(10, 27):
        law.update(sample(ms, in_flight=0))
        noload.append((law.rtt_noload_ns // MS, law.probe_count))
    # after 0.5 x 3 x 4 samples, and after 0.75 x 3 x 4 more
    first = [(10, count) for count in range(1, 6)]
    second = [(15, count) for count in range(9)]
    assert noload == [*first, *second, (24, 0), (24, 1), (24, 2)]


def test_a_drop_in_a_probe_is_lost() -> None:
    law = Vegas(initial=4, probe_multiplier=1, jitter=lambda: 0.5)
    assert limits(law, [sample(10), drop(20)]) == [4, 4]
    assert law.rtt_noload_ns == 20 * MS


def test_it_probes_at_three_quarters_of_the_longest_way_unless_told() -> None:
    law = Vegas(initial=4)
    limits(law, [sample(10, in_flight=0)] * 89)
    assert law.probe_count == 89
    law.update(sample(10, in_flight=0))
    assert law.probe_count == 0


def test_an_initial_above_the_maximum_stands_until_the_first_step() -> None:
    assert limits(Vegas(initial=30, maximum=20), [sample(10), sample(10)]) == [30, 20]

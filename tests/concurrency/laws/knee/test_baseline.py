"""What calls take without a queue, as far as was seen; how much longer they may take; and what a drain may change."""

import pytest

from batchlimit.concurrency.laws.knee.baseline import Baselines, RatioBand, Trust

_MS = 1_000_000


def known(**times: int) -> Baselines:
    baselines = Baselines()
    for _ in range(2):
        baselines.read({name: [time * _MS] * 40 for name, time in times.items()})
    return baselines


def test_what_was_never_seen_sets_its_own() -> None:
    assert Baselines().read({"a": [3 * _MS, 5 * _MS, 90 * _MS]}).ratio == 1.0


def test_nothing_timed_says_nothing() -> None:
    assert Baselines().read({}).ratio == 1.0


def test_an_average_counts_not_the_quickest() -> None:
    assert known(a=20).read({"a": [1 * _MS] * 10 + [40 * _MS] * 30}).ratio > 1.6


@pytest.mark.parametrize(
    ("times", "ratio"),
    [
        ([20] * 25 + [60] * 15, 1.0),  # more long calls than usual: the median stays
        ([20] * 36 + [2000] * 4, 1.0),  # the mean leaves out a tenth at either end
        ([40] * 40, 2.0),  # all of them waited
    ],
)
def test_of_median_and_mean_the_one_that_alarms_less_counts(times: list[int], ratio: float) -> None:
    assert known(a=20).read({"a": [each * _MS for each in times]}).ratio == pytest.approx(ratio)


def test_a_median_that_leaps_by_chance_is_no_queue() -> None:
    """Of a cache half of the calls are quick: a few more or less make the median fiftyfold."""
    cache, usual, other = Baselines(), [_MS] * 21 + [50 * _MS] * 19, [_MS] * 19 + [50 * _MS] * 21
    for _ in range(2):
        cache.read({"": usual})
    assert cache.read({"": other}).ratio < 1.2
    assert cache.read({"": other[1:]}).ratio == 50.0  # too few calls for a mean


@pytest.mark.parametrize(("spans", "ratio"), [(0, 2.0), (1, 52 / 51), (30, 52 / 51)])
def test_beside_long_calls_a_median_that_doubles_is_little(spans: int, ratio: float) -> None:
    """One of twenty takes a second, and the others a millisecond: a queue of another one makes little of that."""
    mixed, times = known(a=1), [_MS] * 38 + [1001 * _MS] * 2
    for _ in range(spans):
        mixed.learn_tails({"a": times})
    assert mixed.read({"a": [2 * _MS] * 38}).ratio == pytest.approx(ratio)


def test_how_long_a_tail_is_goes_a_tenth_of_the_way_with_each_span() -> None:
    mixed = known(a=1)
    mixed.learn_tails({"a": [_MS] * 38 + [1001 * _MS] * 2})
    mixed.learn_tails({"a": [_MS] * 40})
    assert mixed.read({"a": [2 * _MS] * 38}).ratio == pytest.approx(47 / 46)


@pytest.mark.parametrize("times", [[_MS] * 6 + [1001 * _MS], [1001 * _MS] * 30 + [_MS] * 20])
def test_few_calls_tell_of_no_tail_and_a_mean_below_the_median_is_none(times: list[int]) -> None:
    mixed = known(a=1)
    mixed.learn_tails({"a": times})
    assert mixed.read({"a": [2 * _MS] * 38}).ratio == 2.0


@pytest.mark.parametrize(("second", "baseline"), [(24, 24), (59, 59), (61, 20), (15, 15)])
def test_the_second_span_corrects_the_first_but_for_a_queue(second: int, baseline: int) -> None:
    baselines = Baselines()
    baselines.read({"a": [20 * _MS] * 40})
    baselines.read({"a": [second * _MS] * 40})
    assert baselines.longest == baseline * _MS


def test_a_second_span_of_few_calls_corrects_nothing() -> None:
    baselines = Baselines()
    baselines.read({"a": [20 * _MS] * 40})
    baselines.read({"a": [3 * _MS] * 4})
    assert baselines.longest == 20 * _MS
    baselines.read({"a": [24 * _MS] * 5})
    assert baselines.longest == 24 * _MS


@pytest.mark.parametrize(("within", "median"), [(0, 2), (100_000, 2), (10, 8), (7, 8)])
def test_of_calls_that_had_to_end_in_time_a_long_one_stands_for_more(within: int, median: int) -> None:
    """Within 10 s a call of 8 s could begin in the first 2 s alone, one of 2 s in the first 8 s."""
    baselines = Baselines()
    baselines.read({"a": [2 * _MS] * 5 + [8 * _MS] * 2}, within * _MS)
    assert baselines.longest == median * _MS


def test_a_lone_long_call_does_not_stand_for_all() -> None:
    baselines = Baselines()
    baselines.read({"a": [2 * _MS] * 30 + [10 * _MS]}, 10 * _MS)
    assert baselines.longest == 2 * _MS


def test_operations_count_by_their_work() -> None:
    """Ten quick calls that doubled weigh a tenth of ten slow ones that did not."""
    reading = known(quick=10, slow=100).read({"quick": [20 * _MS] * 10, "slow": [100 * _MS] * 10})
    assert reading.ratio == pytest.approx((20 + 100) / (10 + 100))


def test_another_mixture_is_no_queue() -> None:
    baselines = known(quick=10, slow=100)
    assert baselines.read({"quick": [10 * _MS] * 39, "slow": [100 * _MS]}).ratio == 1.0


@pytest.mark.parametrize(
    ("count", "shown", "rise", "fall", "after"),
    [
        (40, 40, 0.5, 0.0, 30.0),
        (40, 40, 0.0, 1.0, 20.0),
        (40, 10, 1.0, 0.5, 15.0),
        (10, 40, 0.5, 0.0, 25.0),
        (400, 40, 0.5, 0.0, 30.0),
        # Three times what was just shown is too much, whatever the law says.
        (40, 2, 0.0, 0.0, 6.0),
    ],
)
def test_it_moves_as_far_as_it_is_told_and_certain(
    count: int, shown: int, rise: float, fall: float, after: float
) -> None:
    baselines = known(a=20)
    baselines.move(baselines.read({"a": [shown * _MS] * count}), rise, fall)
    assert baselines.longest == pytest.approx(after * _MS)


@pytest.mark.parametrize(
    ("shown", "count", "may_rise", "after"),
    [
        (10, 10, True, 10.0),
        (10, 10, False, 10.0),
        (10, 40, True, 10.0),
        # Two calls are not certain.
        (10, 2, True, 15.5),
        (16, 40, True, 18.4),
        (24, 40, True, 20.6),
        (60, 40, True, 56.0),
        (24, 40, False, 20.0),
        # It may be a queue of others: all give way.
        (60, 40, False, 18.0),
    ],
)
def test_it_falls_to_what_a_drain_shows_and_rises_if_it_may(
    shown: int, count: int, may_rise: bool, after: float
) -> None:
    baselines = known(a=20)
    factor = baselines.learn_drain(baselines.read({"a": [shown * _MS] * count}), may_rise, False, False)
    assert baselines.longest == pytest.approx(after * _MS, rel=0.01)
    assert factor == pytest.approx(after / 20, rel=0.01)


@pytest.mark.parametrize(("count", "after"), [(10, 15.0), (40, 10.0)])
def test_it_falls_half_as_far_where_ten_calls_may_be_short_by_chance(count: int, after: float) -> None:
    baselines = known(a=20)
    baselines.learn_drain(baselines.read({"a": [10 * _MS] * count}), may_rise=False, is_by_chance=True, is_quick=False)
    assert baselines.longest == pytest.approx(after * _MS)


@pytest.mark.parametrize(
    ("drains", "after"),
    [
        ([(16, 10)], 16.0),
        ([(16, 10), (14, 10), (12, 20)], 13.5),  # each call of a drain counts alike
        ([(16, 10), (60, 10), (30, 10)], 30.0),  # news: what came before it counts no more
        ([(20, 4000), (16, 60)], 19.333),  # nor does what is long ago: a baseline stands for 300 calls at most
        ([(24, 10), (24, 10)], 21.11),  # up by small steps: it may be a queue of others
    ],
)
def test_of_quick_calls_it_is_the_mean_of_what_drains_showed_since_the_last_news(
    drains: list[tuple[int, int]], after: float
) -> None:
    """One drain of ten calls is off by 20 % by chance: of two limiters it would give one far more than its share."""
    baselines = known(a=20)
    for shown, count in drains:
        baselines.learn_drain(baselines.read({"a": [shown * _MS] * count}), True, False, is_quick=True)
    assert baselines.longest == pytest.approx(after * _MS, rel=0.001)


# How long a line may be: of a share of the limit, and of the square root of it


@pytest.mark.parametrize(
    ("limit", "allowed"), [(1, 3.0), (3, 3.0), (4, 2.5), (9, 1.667), (16, 1.429), (25, 1.316), (100, 1.3)]
)
def test_small_limits_are_allowed_a_longer_line(limit: float, allowed: float) -> None:
    assert RatioBand(1.3).allowed(limit) == pytest.approx(allowed, abs=0.001)


@pytest.mark.parametrize(("limit", "allowed"), [(1, 6.602), (2, 3.256), (3, 2.5), (9, 1.612), (100, 1.3)])
def test_limits_of_one_to_three_are_drawn_together_where_they_are_to_be_even(limit: float, allowed: float) -> None:
    band = RatioBand(1.3)
    band.is_even = True
    assert band.allowed(limit) == pytest.approx(allowed, abs=0.001)


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


# A baseline rises only if drains are known to work: or each limiter of many believes in the queue of the others


def doubtful() -> Trust:
    """One that has no reason to believe any more."""
    trust = Trust()
    assert [trust.drained(3.0, 3.0) for _ in range(2)] == [True, True]
    return trust


@pytest.mark.parametrize(
    ("drains", "believed"),
    [
        # The drain removed what was in line; then calls take longer in a drain as well.
        ([(2.0, 1.0), (3.0, 3.0)], True),
        ([(1.4, 1.05), (3.0, 3.0)], True),
        # Nothing seems to have been in line: so it looks as well where a baseline is too high.
        ([(1.1, 1.1), (3.0, 3.0)], False),
        # It removed some of it, as where one of four drains.
        ([(2.0, 1.6), (3.0, 3.0)], False),
        ([(3.0, 3.0)], False),
        # Twice is enough.
        ([(2.0, 1.0), (3.0, 3.0), (3.0, 3.0)], True),
        ([(2.0, 1.0), (3.0, 3.0), (3.0, 3.0), (3.0, 3.0)], False),
    ],
)
def test_the_last_of_these_drains_is_believed(drains: list[tuple[float, float]], believed: bool) -> None:
    trust = doubtful()
    assert [trust.drained(*each) for each in drains][-1] is believed


def test_what_comes_after_calm_is_believed() -> None:
    trust = doubtful()
    assert not trust.has_been_calm
    trust.calm(4 * 1000 * _MS, is_idle=True)
    assert trust.has_been_calm
    assert trust.drained(3.0, 3.0)


def test_calm_under_load_counts_once_there_was_calm_without() -> None:
    trust = doubtful()
    trust.calm(4 * 1000 * _MS, is_idle=False)
    assert not trust.drained(3.0, 3.0)
    trust.calm(4 * 1000 * _MS, is_idle=True)
    assert [trust.drained(3.0, 3.0) for _ in range(3)] == [True, True, False]
    trust.calm(4 * 1000 * _MS, is_idle=False)
    assert trust.drained(3.0, 3.0)


def test_a_queue_interrupts_calm() -> None:
    trust = doubtful()
    for _ in range(5):
        trust.calm(2 * 1000 * _MS, is_idle=True)
        trust.queued()
    assert not trust.drained(3.0, 3.0)
    assert not trust.has_been_calm


def test_without_a_reason_it_takes_32_drains_each_time() -> None:
    trust = doubtful()
    assert [k for k in range(1, 100) if trust.drained(3.0, 3.0)] == [32, 64, 96]


def test_without_load_it_starts_anew() -> None:
    trust = doubtful()
    for _ in range(32):
        trust.drained(3.0, 3.0)
    trust.calm(4 * 1000 * _MS, is_idle=True)
    assert [k for k in range(1, 60) if trust.drained(3.0, 3.0)] == [1, 2, 34]

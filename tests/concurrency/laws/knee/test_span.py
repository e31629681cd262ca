"""A span ends when it tells enough, however few calls there are; and no call of a broken clock keeps it open."""

import pytest

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws.knee.span import Span

_MS, _SECOND = 1_000_000, 1_000_000_000


def ended_at(span: Span, rate: float, rtt: int = 20 * _MS, first: int = 0) -> tuple[float, int]:
    """Seconds until calls that end `rate` times a second end the span, and how many they were."""
    for k in range(1, 10_000):
        now = first + int(k * _SECOND / rate)
        if span.add(Sample(now - rtt, rtt, 1)):
            return (now - first) / _SECOND, k
    raise AssertionError("it does not end")


@pytest.mark.parametrize(
    ("rate", "seconds", "calls"),
    [
        (1000, 0.2, 200),
        (200, 0.2, 40),
        (20, 2.0, 40),
        (10, 3.0, 30),
        (2, 4.0, 8),
        (0.5, 10.0, 5),
        (0.1, 20.0, 2),
        (0.01, 100.0, 1),
    ],
)
def test_many_calls_end_a_short_span_and_few_a_long_one(rate: float, seconds: float, calls: int) -> None:
    span = Span()
    span.restart(0, 200 * _MS)
    assert ended_at(span, rate) == pytest.approx((seconds, calls))


@pytest.mark.parametrize(("rate", "seconds", "calls"), [(1000, 0.041, 41), (200, 0.045, 9), (20, 0.4, 8), (2, 4.0, 8)])
def test_the_first_ends_after_three_round_trips_and_eight_calls(rate: float, seconds: float, calls: int) -> None:
    span = Span()
    assert ended_at(span, rate, first=10**15) == pytest.approx((seconds, calls), abs=0.001)
    assert span.begin == 10**15 + _SECOND // rate - 20 * _MS


@pytest.mark.parametrize(
    ("rate", "rtt_ms", "seconds"),
    [
        # The first call that was admitted in it ends after its round trip; its age counts from there.
        (1000, 20, 0.4),
        (1000, 500, 1.5),
        (20, 20, 0.5),
        (10, 20, 0.7),
        (10, 500, 1.5),
        (0.1, 20, 20.0),
    ],
)
def test_a_drain_lasts_as_long_as_its_own_calls_ask_for(rate: float, rtt_ms: int, seconds: float) -> None:
    span = Span()
    span.restart_drain(0, 8 * _SECOND, 0)
    assert ended_at(span, rate, rtt_ms * _MS)[0] == pytest.approx(seconds, abs=0.11)


@pytest.mark.parametrize(
    ("side_by_side", "rtt_ms", "within", "is_by_chance"),
    [(5, 20, 0, False), (7, 1000, 0, False), (6, 3000, 9, False), (7, 3000, 9, True), (1, 3000, 0, False)],
)
def test_a_drain_of_slow_calls_side_by_side_leaves_out_long_ones(
    side_by_side: int, rtt_ms: int, within: int, is_by_chance: bool
) -> None:
    """One after the other they leave out none: a drain ends when a call does. Of seven, chance says which end in it."""
    span = Span()
    span.restart_drain(0, 8 * _SECOND, 0)
    while not span.add(Sample(span.count * _SECOND // 5, rtt_ms * _MS, side_by_side)):
        pass
    assert span.within == pytest.approx(within * _SECOND, abs=_SECOND)
    assert span.is_by_chance is is_by_chance


def test_a_drain_without_calls_is_given_up_when_all_from_before_have_ended() -> None:
    """Those that take long stand in a queue: what comes after them shows how long a call takes without it."""
    span = Span()
    span.restart_drain(10 * _SECOND, 2 * _SECOND, 3)
    assert [span.add(Sample(9 * _SECOND, took * _SECOND, 1)) for took in (2, 4, 5)] == [False, False, True]
    assert span.count == 0


def test_a_drain_without_calls_is_not_given_up_too_soon() -> None:
    span = Span()
    span.restart_drain(10 * _SECOND, 2 * _SECOND, 1)
    assert [span.add(Sample(9 * _SECOND, took * _SECOND, 1)) for took in (2, 3)] == [False, True]


def test_a_span_ends_when_a_drain_is_to_begin() -> None:
    span = Span()
    span.restart(0, 200 * _MS, until=50 * _MS)
    assert ended_at(span, 1000) == (0.05, 50)


def test_it_is_open_for_as_long_as_the_law_says() -> None:
    span = Span()
    span.restart(0, 5 * _SECOND)
    assert ended_at(span, 1000) == (5.0, 5000)


def test_concurrency_is_time_taken_over_time_passed() -> None:
    span = Span()
    span.restart(0, 200 * _MS)
    ended_at(span, 1000)
    assert span.concurrency == pytest.approx(20.0)


def test_a_drain_does_not_count_calls_from_before() -> None:
    span = Span()
    span.restart_drain(100, 200, 0)
    span.add(Sample(99, 10, 9, dropped=True))
    assert (span.count, span.dropped, span.busy, span.peak, span.times) == (0, 0, 0, 0, {})


@pytest.mark.parametrize(("rtt", "dropped"), [(0, False), (-5, False), (10**30, False), (7, True)])
def test_what_was_not_timed_is_counted_all_the_same(rtt: int, dropped: bool) -> None:
    span = Span()
    span.add(Sample(0, rtt, 3, dropped))
    assert (span.count, span.dropped, span.peak, span.times) == (1, dropped, 3, {})


def test_a_call_of_the_future_does_not_keep_it_open() -> None:
    span = Span()
    span.restart(10**30, 200 * _MS)
    assert ended_at(span, 1000)[0] < 1.0


def test_names_without_end_are_one_operation() -> None:
    span = Span()
    span.restart(0, 10**12)
    for k in range(1000):
        span.add(Sample(k, 5, 1, operation=f"user {k}"))
    assert len(span.times) <= 64
    assert len(span.times[""]) > 900


def test_what_is_kept_of_a_span_is_bounded() -> None:
    span = Span()
    span.restart(0, 10**12)
    for k in range(10_000):
        span.add(Sample(k, 5, 1))
    assert span.count == 10_000
    assert len(span.times[""]) == 2048

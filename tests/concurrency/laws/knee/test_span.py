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
    span = Span(0)
    span.restart(0, 200 * _MS)
    assert ended_at(span, rate) == pytest.approx((seconds, calls))


def test_it_begins_with_the_first_call() -> None:
    span = Span(200 * _MS)
    assert ended_at(span, 1000, first=10**15)[0] == pytest.approx(0.181)
    assert span.begin == 10**15 + _MS - 20 * _MS


def test_it_is_open_for_as_long_as_the_law_says() -> None:
    span = Span(0)
    span.restart(0, 5 * _SECOND)
    assert ended_at(span, 1000) == (5.0, 5000)


def test_concurrency_is_time_taken_over_time_passed() -> None:
    span = Span(0)
    span.restart(0, 200 * _MS)
    ended_at(span, 1000)
    assert span.concurrency == pytest.approx(20.0)


def test_calls_from_before_are_not_counted() -> None:
    span = Span(0)
    span.restart(100, 200, since=100)
    span.add(Sample(99, 10, 9, dropped=True))
    assert (span.count, span.dropped, span.busy, span.peak, span.times) == (0, 0, 0, 0, {})


@pytest.mark.parametrize(("rtt", "dropped"), [(0, False), (-5, False), (10**30, False), (7, True)])
def test_what_was_not_timed_is_counted_all_the_same(rtt: int, dropped: bool) -> None:
    span = Span(0)
    span.add(Sample(0, rtt, 3, dropped))
    assert (span.count, span.dropped, span.peak, span.times) == (1, dropped, 3, {})


def test_a_call_of_the_future_does_not_keep_it_open() -> None:
    span = Span(0)
    span.restart(10**30, 200 * _MS, since=10**30)
    assert ended_at(span, 1000)[0] < 1.0


def test_names_without_end_are_one_operation() -> None:
    span = Span(0)
    span.restart(0, 10**12)
    for k in range(1000):
        span.add(Sample(k, 5, 1, operation=f"user {k}"))
    assert len(span.times) <= 64
    assert len(span.times[""]) > 900


def test_what_is_kept_of_a_span_is_bounded() -> None:
    span = Span(0)
    span.restart(0, 10**12)
    for k in range(10_000):
        span.add(Sample(k, 5, 1))
    assert span.count == 10_000
    assert len(span.times[""]) == 2048

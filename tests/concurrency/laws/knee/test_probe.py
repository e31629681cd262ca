"""A probe comes when nothing else shows what calls take, costs little, and leaves no trace."""

import pytest

from batchlimit.concurrency.laws.knee.probe import Probe

_SECOND = 10**9


def due_after(probe: Probe, now: int, span: int = _SECOND // 5, jitter: float = 1.0) -> int:
    """After how many spans in use it is time."""
    for k in range(1, 1000):
        if probe.is_due(now + k * span, jitter):
            return k
    raise AssertionError("never")


def test_the_first_come_soon_the_later_ones_seldom() -> None:
    probe, now, seen = Probe(), 0, []
    for _ in range(5):
        spans = due_after(probe, now)
        now += spans * _SECOND // 5
        seen.append(spans)
        probe.begin(20.0, 1)
        assert not probe.step(now)
        assert probe.step(now)
    # A fifth of a second each: after 40 spans 20 s have not passed.
    assert seen == [13, 25, 50, 100, 100]


def test_long_spans_are_counted_short_ones_timed() -> None:
    assert due_after(Probe(), 0, span=10 * _SECOND) == 5
    assert due_after(Probe(), 0, span=_SECOND // 100) == 250


def test_a_calm_span_puts_it_off() -> None:
    probe = Probe()
    assert not probe.is_due(2 * _SECOND, 1.0)
    probe.calm(2 * _SECOND)
    assert due_after(probe, 2 * _SECOND) == 13


def test_jitter_moves_it() -> None:
    assert due_after(Probe(), 0, jitter=1.5) > due_after(Probe(), 0, jitter=0.5)


def test_a_clock_that_leapt_does_not_put_it_off_for_ever() -> None:
    probe = Probe()
    probe.calm(10**30)
    assert due_after(probe, 0) == 5


@pytest.mark.parametrize(
    ("limit", "minimum", "tried"), [(100, 1, 60), (4, 1, 2.4), (2, 1, 1.2), (1, 1, 2), (20, 18, 18), (20, 20, 33.33)]
)
def test_it_tries_less_or_more_where_there_is_no_less(limit: float, minimum: int, tried: float) -> None:
    probe = Probe()
    assert probe.begin(limit, minimum) == pytest.approx(tried, abs=0.01)
    assert probe.under_way
    assert probe.resume == limit

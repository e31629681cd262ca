"""Limiters with a common clock drain at the same instants, whenever they began and however long their waits are."""

from itertools import pairwise

import pytest

from batchlimit.concurrency.laws.knee.span import Drains

_SECOND = 10**9
_SPAN = _SECOND // 5


def drained(drains: Drains, first: int, until: int, span: int = _SPAN) -> list[int]:
    """The instants, in seconds, at which it drains if it is asked each span from `first` on."""
    seen, now = [], first
    drains.plan(now, span)
    while now < until:
        now = min(now + span, drains.next)
        if drains.is_due(now):
            seen.append(now // _SECOND)
            drains.relax(span)
            drains.plan(now, span)
    return seen


def test_the_first_come_soon_the_later_ones_every_16_seconds() -> None:
    assert drained(Drains(0), 0, 70 * _SECOND) == [2, 4, 8, 12, 16, 32, 48, 64]


@pytest.mark.parametrize("span", [_SPAN, 8 * _SPAN, 16 * _SPAN])
@pytest.mark.parametrize("first", [0, 3 * _SECOND, 37 * _SECOND])
def test_in_their_first_16_seconds_all_drain_together_whatever_they_take_for_the_time_of_a_call(
    first: int, span: int
) -> None:
    """A limiter that comes to a queue takes it for the time of a call: that must not put off what would show it."""
    seen = set(drained(Drains(0), first, 10**3 * _SECOND, span))
    assert {at for at in range(0, 1000, 4) if 4 <= at - first / _SECOND < 12} <= seen


def test_the_early_drains_of_slow_calls_do_not_put_off_the_next_one() -> None:
    """Few calls end in them: what they show by chance is put right soon."""
    assert drained(Drains(0), 2 * _SECOND, 130 * _SECOND, 16 * _SPAN) == [4, 8, 12, 16, 32, 128]


def test_the_first_drains_of_very_slow_calls_wait_for_some_spans() -> None:
    assert drained(Drains(0), 0, 70 * _SECOND, 6 * _SECOND) == [32, 64]


def test_whoever_joins_later_drains_with_the_others() -> None:
    assert drained(Drains(0), 23 * _SECOND + 7, 70 * _SECOND)[-2:] == [48, 64]


@pytest.mark.parametrize("offset", [0, 5 * _SECOND, -(10**18) - 7])
def test_clocks_that_differ_by_an_offset_agree(offset: int) -> None:
    drains = Drains(offset)
    drains.plan(100 - offset, _SPAN)
    assert drains.next + offset == 2 * _SECOND


def test_longer_spans_wait_for_some_of_the_same_instants() -> None:
    long, short = (set(drained(Drains(0), 0, 1000 * _SECOND, span)) for span in (8 * _SPAN, _SPAN))
    assert len(long) >= 10
    assert {at for at in long if at % 16 == 0} <= short


@pytest.mark.parametrize("span", [_SPAN, 3 * _SECOND, 60 * _SECOND])
def test_drains_cost_little_however_long_they_are(span: int) -> None:
    seen = drained(Drains(0), 0, 10**5 * _SECOND, span)
    assert all(later - earlier >= 40 * span / _SECOND for earlier, later in list(pairwise(seen))[8:])


def test_what_is_sudden_is_looked_at_soon() -> None:
    drains = Drains(0)
    drains.plan(64 * _SECOND, _SPAN)
    drains.hurry(70 * _SECOND + 1, _SPAN)
    assert drains.next == 71 * _SECOND


def test_a_clock_that_leapt_does_not_put_it_off_for_ever() -> None:
    drains = Drains(0)
    drains.plan(10**30, _SPAN)
    assert drains.is_due(0)


@pytest.mark.parametrize(
    ("limit", "uncut", "tried"),
    [(100, 0, 25), (100, 300, 75), (6, 0, 2), (5, 0, 2), (4.7, 0, 1), (1, 0, 1), (2.5, 40, 2.5)],
)
def test_it_lets_a_quarter_in_and_never_more_than_before(limit: float, uncut: float, tried: float) -> None:
    drains = Drains(0)
    assert drains.begin(limit, 1.5, uncut) == tried
    assert drains.under_way
    assert (drains.settled, drains.ratio_before) == (limit, 1.5)


def settled() -> Drains:
    drains = Drains(0)
    for _ in range(4):
        drains.relax(_SPAN)
    return drains


@pytest.mark.parametrize(("ratio", "tried"), [(1.0, 50), (1.5, 50), (1.6, 25), (3.0, 25)])
def test_a_short_line_needs_half_a_drain_once_waits_are_long(ratio: float, tried: float) -> None:
    assert settled().begin(100, ratio, 0) == tried
    assert Drains(0).begin(100, ratio, 0) == 25


def test_the_drain_after_news_is_deep() -> None:
    hurried, doubted = settled(), settled()
    hurried.hurry(0, _SPAN)
    doubted.relax(_SPAN, is_far_off=True)
    assert hurried.begin(100, 1.2, 0) == doubted.begin(100, 1.2, 0) == 25


def test_a_deep_drain_lets_a_twentieth_in() -> None:
    drains = Drains(0)
    assert drains.begin(20, 3.0, 0, deep=True) == 1
    assert drains.begin(200, 3.0, 0, deep=True) == 10


@pytest.mark.parametrize(
    ("at", "span", "is_young"),
    [
        (0, _SPAN, True),
        (13, _SPAN, True),
        (17, _SPAN, False),
        (0, 16 * _SPAN, True),
        (0, 5 * _SECOND, False),
    ],
)
def test_it_is_young_for_16_seconds_where_calls_are_quick(at: int, span: int, is_young: bool) -> None:
    drains = Drains(0)
    drains.plan(0, _SPAN)
    assert drains.is_young(at * _SECOND, span) is is_young


@pytest.mark.parametrize(("span", "usual"), [(_SPAN, 16), (4 * _SPAN, 32)])
def test_it_listens_when_all_that_have_settled_drain(span: int, usual: int) -> None:
    drains = Drains(0)
    drains.plan(0, span)
    heard = []
    while drains.next < 100 * _SECOND:
        if drains.is_usual(span):
            heard.append(drains.next // _SECOND)
        drains.plan(drains.next, span)
    assert heard == list(range(usual, 100, usual))


def test_to_listen_changes_no_limit() -> None:
    drains = Drains(0)
    drains.listen(40.0, 1.2)
    assert drains.under_way
    assert drains.listens
    assert (drains.settled, drains.ratio_before) == (40.0, 1.2)
    drains.begin(40.0, 1.2, 0)
    assert not drains.listens

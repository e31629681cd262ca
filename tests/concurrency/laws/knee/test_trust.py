"""A baseline rises only if drains are known to work: or each limiter of many believes in the queue of the others."""

import pytest

from batchlimit.concurrency.laws.knee.baseline import Trust

_SECOND = 10**9


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
    trust.calm(4 * _SECOND, is_idle=True)
    assert trust.has_been_calm
    assert trust.drained(3.0, 3.0)


def test_calm_under_load_counts_once_there_was_calm_without() -> None:
    trust = doubtful()
    trust.calm(4 * _SECOND, is_idle=False)
    assert not trust.drained(3.0, 3.0)
    trust.calm(4 * _SECOND, is_idle=True)
    assert [trust.drained(3.0, 3.0) for _ in range(3)] == [True, True, False]
    trust.calm(4 * _SECOND, is_idle=False)
    assert trust.drained(3.0, 3.0)


def test_a_queue_interrupts_calm() -> None:
    trust = doubtful()
    for _ in range(5):
        trust.calm(2 * _SECOND, is_idle=True)
        trust.crowded()
    assert not trust.drained(3.0, 3.0)
    assert not trust.has_been_calm


def test_without_a_reason_it_takes_four_times_as_many_drains_each_time() -> None:
    trust = doubtful()
    assert [k for k in range(1, 1000) if trust.drained(3.0, 3.0)] == [32, 160, 672]


def test_without_load_it_starts_anew() -> None:
    trust = doubtful()
    for _ in range(32):
        trust.drained(3.0, 3.0)
    trust.calm(4 * _SECOND, is_idle=True)
    assert [k for k in range(1, 100) if trust.drained(3.0, 3.0)] == [1, 2, 34]

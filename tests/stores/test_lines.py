"""Who lines up at a key gets a turn of its own at every store, as many seconds after the one before as it says."""

import pytest

from batchlimit.stores import Store
from tests.awaiting import pauses_of

LONG = 100.0


def test_one_comes_after_the_other(store: Store) -> None:
    lines = pauses_of(store)
    first, second, third = (lines.line_up("key", 50.0, spacing, LONG) for spacing in (2.0, 3.0, 1.0))
    assert first == pytest.approx(50.0, abs=1e-5)
    assert 52.0 - 10.0 < second <= 52.0 + 1e-5
    assert second + 3.0 - 10.0 < third <= second + 3.0 + 1e-5


def test_a_turn_is_not_before_what_a_caller_has_to_wait_for_anyway(store: Store) -> None:
    lines = pauses_of(store)
    lines.line_up("key", 0.0, 1.0, LONG)
    assert lines.line_up("key", 60.0, 1.0, LONG) == pytest.approx(60.0, abs=1e-5)
    assert lines.line_up("key", 0.0, 1.0, LONG) > 61.0 - 10.0


def test_a_turn_that_is_too_late_is_told_and_stays_free(store: Store) -> None:
    lines = pauses_of(store)
    assert lines.line_up("key", 50.0, 90.0, LONG) == pytest.approx(50.0, abs=1e-5)
    told = [lines.line_up("key", 0.0, 90.0, LONG) for _ in range(2)]
    assert all(140.0 - 10.0 < each <= 140.0 + 1e-5 for each in told)


def test_each_key_has_a_line_of_its_own(store: Store) -> None:
    lines = pauses_of(store)
    lines.line_up("one", 0.0, 60.0, LONG)
    assert lines.line_up("other", 0.0, 60.0, LONG) == pytest.approx(0.0, abs=1e-5)

import math
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.concurrency.watchers import (
    MemoryWatcher,
    PressureWatcher,
    ProcessorWatcher,
    Threshold,
    ThrottlingWatcher,
)
from batchlimit.concurrency.watchers.watcher import Counted, ShareThreshold

SHARES = st.floats(0, 2, allow_nan=False)


@pytest.mark.parametrize(
    ("low", "values"),
    [
        (0.8, [(0.89, False), (0.9, True), (0.85, True), (0.8, True), (0.79, False), (0.85, False), (0.95, True)]),
        (None, [(0.89, False), (0.9, True), (0.89, False), (0.9, True)]),
        (0.9, [(0.9, True), (0.89, False)]),
    ],
)
def test_a_value_is_too_high_from_high_until_it_falls_below_low(
    low: float | None, values: list[tuple[float, bool]]
) -> None:
    threshold = Threshold(0.9, low)
    assert [(value, threshold.update(value)) for value, _ in values] == values


@given(high=st.floats(0.01, 1), gap=st.floats(0, 1, exclude_max=True), values=st.lists(SHARES))
def test_it_turns_up_only_at_high_and_down_only_below_low(high: float, gap: float, values: list[float]) -> None:
    threshold = Threshold(high, high * (1 - gap))
    for value in values:
        before = threshold.exceeded
        after = threshold.update(value)
        if before != after:
            assert value >= high if after else value < threshold.low


@pytest.mark.parametrize("high", [0, -1.0, math.inf, math.nan])
def test_a_threshold_is_a_finite_number_above_0(high: float) -> None:
    with pytest.raises(ValueError, match=repr(high)):
        Threshold(high)


@pytest.mark.parametrize("low", [0, -0.1, 0.91, math.nan])
def test_low_is_at_most_high_and_above_0(low: float) -> None:
    with pytest.raises(ValueError, match=repr(low)):
        Threshold(0.9, low)


def test_it_shows_its_state() -> None:
    threshold = Threshold(0.9, 0.8)
    threshold.update(1.0)
    assert repr(threshold) == "<Threshold: 0.8 to 0.9, exceeded>"


@pytest.mark.parametrize(
    ("low", "counted", "shares"),
    [
        pytest.param(0.4, [(0, 0), (40, 100), (90, 200), (130, 300), (169, 400), (209, 500)], "001100", id="trembles"),
        pytest.param(0.4, [(0, 0), (50, 100), (50, 100), (95, 200)], "0100", id="nothing passed"),
        pytest.param(None, [(900, 1000), (10, 10), (20, 20), (20, 30), (30, 40)], "00101", id="begins anew"),
        pytest.param(None, [(10, 10)], "0", id="of the first look nothing is known"),
    ],
)
def test_a_share_is_of_what_passed_since_the_last_look(
    low: float | None, counted: list[tuple[float, float]], shares: str
) -> None:
    threshold = ShareThreshold(0.5, low)
    seen = [threshold.worst({"it": Counted(used, passed)}) is not None for used, passed in counted]
    assert seen == [each == "1" for each in shares]


def test_of_several_parts_the_worst_off_is_told_by_how_many_may_be_used_at_once() -> None:
    threshold = ShareThreshold(0.5, None)
    threshold.worst({"a": Counted(0, 0), "b": Counted(5, 0)})
    seen = {"a": Counted(14, 10, at_once=2.0, seconds=1.5), "b": Counted(11, 10, seconds=3.0)}
    assert threshold.worst(seen) == (0.7, "a", 10, 1.5)
    assert threshold.worst({"b": Counted(19, 20)}) == (0.8, "b", 10, -3.0)


OF_SHARES: list[Callable[..., object]] = [
    MemoryWatcher,
    ThrottlingWatcher,
    ProcessorWatcher,
    partial(PressureWatcher, "cpu", "some"),
]


@pytest.mark.parametrize("watcher", OF_SHARES)
@pytest.mark.parametrize("share", [0, -0.1, 1.1, 90, math.nan])
def test_thresholds_of_watchers_are_shares(watcher: Callable[..., object], share: float) -> None:
    with pytest.raises(ValueError, match=repr(share)):
        watcher(share)
    with pytest.raises(ValueError, match=repr(share)):
        watcher(0.9, low=share)


@pytest.mark.parametrize("share", ["0.9", True, None])
def test_a_share_is_a_number(share: object) -> None:
    with pytest.raises(TypeError, match=repr(share)):
        MemoryWatcher(share)  # type: ignore[arg-type]


def test_a_part_that_could_not_be_read_once_goes_on_where_it_was() -> None:
    threshold = ShareThreshold(0.5, None)
    looks = [{"a": Counted(0, 0)}, {}, {"a": Counted(9, 10)}]
    assert [threshold.worst(look) is not None for look in looks] == [False, False, True]

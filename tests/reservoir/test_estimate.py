"""Charges before the cost is known, and how they are made good."""

from typing import Any

import pytest

from batchlimit.reservoir.estimate import Estimate, SettledOnce, estimated


@pytest.mark.parametrize(("actual", "difference"), [(0, -40), (39, -1), (40, 0), (41, 1), (1000, 960)])
def test_settling_says_what_is_still_to_be_charged(actual: int, difference: int) -> None:
    estimate = Estimate({"key": 40}, "keep")
    assert estimate.settle({"key": actual}) == {"key": difference}
    assert estimate.settled


@pytest.mark.parametrize(("actual", "error"), [(-1, ValueError), (True, TypeError), (1.0, TypeError)])
def test_what_cannot_have_been_used_settles_nothing(actual: Any, error: type[Exception]) -> None:
    estimate = Estimate({"key": 40}, "keep")
    with pytest.raises(error, match="actual must be"):
        estimate.settle({"key": actual})
    assert not estimate.settled


@pytest.mark.parametrize(
    ("on_error", "failed", "back"), [("keep", False, 0), ("keep", True, 0), ("refund", False, 0), ("refund", True, 40)]
)
def test_the_end_of_a_block_refunds_when_it_is_told_to(on_error: str, failed: bool, back: int) -> None:
    estimate = Estimate({"key": 40}, on_error)  # type: ignore[arg-type]
    assert estimate.close(failed=failed) == ({"key": back} if back else {})
    with pytest.raises(RuntimeError):
        estimate.settle({"key": 1})


@pytest.mark.parametrize(("key", "cost", "costs"), [("a", 3, {"a": 3}), ({"a": 3, "b": 1}, None, {"a": 3, "b": 1})])
def test_an_estimate_is_of_one_key_and_its_cost_or_of_several(key: Any, cost: Any, costs: dict[str, int]) -> None:
    assert estimated(key, cost) == costs


def test_an_estimate_of_one_key_needs_a_cost() -> None:
    with pytest.raises(TypeError, match="needs a cost"):
        estimated("a", None)


def test_what_is_settled_is_not_refunded() -> None:
    estimate = Estimate({"key": 40}, "refund")
    estimate.settle({"key": 50})
    assert estimate.close(failed=True) == {}


def test_the_first_key_that_was_not_reserved_is_named() -> None:
    with pytest.raises(ValueError, match="nothing was reserved at 'a'"):
        Estimate({"key": 40}, "keep").settle({"b": 1, "a": 1})


def test_an_estimate_shows_what_it_is_of() -> None:
    assert repr(Estimate({"key": 40}, "keep")) == "<Estimate of 40 at 'key': open>"


@pytest.mark.parametrize(("error", "adjusted"), [(None, []), (ValueError(), [("key", -40)])])
def test_a_block_that_failed_takes_its_estimate_back(error: Exception | None, adjusted: list[tuple[str, int]]) -> None:
    found: list[tuple[str, int]] = []
    SettledOnce(Estimate({"key": 40}, "refund"), lambda key, more: found.append((key, more)))._end(error)
    assert found == adjusted

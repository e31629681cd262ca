"""Charges before the cost is known, and how they are made good."""

from typing import Any

import pytest

from batchlimit.keyspace.reservation import BaseReservation, OnError, estimated


def made(on_error: OnError) -> tuple[BaseReservation, list[tuple[str, int]]]:
    """Return an estimate of 40 tokens, and what its key was charged by it."""
    adjusted = list[tuple[str, int]]()
    return BaseReservation({"key": 40}, on_error, lambda key, more: adjusted.append((key, more))), adjusted


@pytest.mark.parametrize(("actual", "difference"), [(0, -40), (39, -1), (40, 0), (41, 1), (1000, 960)])
def test_settling_says_what_is_still_to_be_charged(actual: int, difference: int) -> None:
    estimate = made("keep")[0]
    assert estimate._difference({"key": actual}) == {"key": difference}
    assert estimate.settled


@pytest.mark.parametrize(("actual", "error"), [(-1, ValueError), (True, TypeError), (1.0, TypeError)])
def test_what_cannot_have_been_used_settles_nothing(actual: Any, error: type[Exception]) -> None:
    estimate = made("keep")[0]
    with pytest.raises(error, match=r"actual \(tokens\) must be"):
        estimate._difference({"key": actual})
    assert not estimate.settled


@pytest.mark.parametrize(
    ("on_error", "error", "back"),
    [("keep", None, []), ("keep", ValueError(), []), ("refund", None, []), ("refund", ValueError(), [("key", -40)])],
)
def test_the_end_of_a_block_refunds_when_it_is_told_to(
    on_error: OnError, error: Exception | None, back: list[tuple[str, int]]
) -> None:
    estimate, adjusted = made(on_error)
    estimate._end(error)
    assert adjusted == back
    with pytest.raises(RuntimeError):
        estimate._difference({"key": 1})


@pytest.mark.parametrize(("key", "cost", "costs"), [("a", 3, {"a": 3}), ({"a": 3, "b": 1}, None, {"a": 3, "b": 1})])
def test_an_estimate_is_of_one_key_and_its_cost_or_of_several(key: Any, cost: Any, costs: dict[str, int]) -> None:
    assert estimated(key, cost, "keep") == costs


def test_an_estimate_of_one_key_needs_a_cost() -> None:
    with pytest.raises(TypeError, match="needs a cost"):
        estimated("a", None, "keep")


def test_what_is_settled_is_not_refunded() -> None:
    estimate, adjusted = made("refund")
    estimate._difference({"key": 50})
    estimate._end(ValueError())
    assert adjusted == []


def test_the_first_key_that_was_not_reserved_is_named() -> None:
    with pytest.raises(ValueError, match="nothing was reserved at 'a'"):
        made("keep")[0]._difference({"b": 1, "a": 1})


def test_an_estimate_shows_what_it_is_of() -> None:
    assert repr(made("keep")[0]) == "<BaseReservation of 40 at 'key': open>"

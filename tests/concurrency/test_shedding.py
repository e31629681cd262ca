"""When calls under way are given up, and which."""

from dataclasses import dataclass

import pytest

from batchlimit.concurrency import Shedding
from batchlimit.concurrency.shedding import Shedder


@dataclass
class Call:
    """A call under way."""

    operation: str
    priority: int
    start_ns: int


CALLS = [Call("a", 5, 1), Call("b", 1, 2), Call("c", 1, 3), Call("d", 9, 4)]


def chosen(shedder: Shedder) -> str:
    return "".join(call.operation for call in shedder.choose(CALLS))


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([], ""),
        ([1], ""),
        ([1, 1], ""),
        ([1, 1, 1], "c"),
        ([1, 1, 1, 1], "c"),
        ([1, 1, 0, 1], ""),
        ([1, 1, 1, 0], ""),
        ([1, 1, 0, 1, 1, 1], "c"),
    ],
)
def test_reasons_have_to_persist(rounds: list[int], expected: str) -> None:
    shedder = Shedder(Shedding())
    for bad in rounds:
        shedder.note(["memory"] * bad)
    assert chosen(shedder) == expected


@pytest.mark.parametrize(("share", "expected"), [(0.01, "c"), (0.25, "c"), (0.26, "cb"), (0.75, "cba"), (1, "cbad")])
def test_the_least_and_of_them_the_youngest_first(share: float, expected: str) -> None:
    shedder = Shedder(Shedding(after=1, share=share))
    shedder.note(["memory"])
    assert chosen(shedder) == expected


def test_an_order_of_ones_own() -> None:
    def oldest(call: Call) -> int:
        return call.start_ns

    shedder = Shedder(Shedding(after=1, key=oldest))
    shedder.note(["cpu"])
    assert chosen(shedder) == "a"


def test_of_none_none_is_given_up() -> None:
    shedder = Shedder(Shedding(after=1))
    shedder.note(["cpu"])
    assert shedder.choose([]) == []


@pytest.mark.parametrize(
    ("excesses", "expected"),
    [
        ([3], ""),
        ([3, 3], "c"),
        ([3, 3, 1], "c"),
        ([3, 0, 3], ""),
        ([3, -5, 3, 3], "c"),
    ],
)
def test_calls_above_the_limit_for_long_are_a_reason_too(excesses: list[int], expected: str) -> None:
    shedder = Shedder(Shedding(over=2))
    for excess in excesses:
        shedder.note([], excess)
    assert chosen(shedder) == expected


@pytest.mark.parametrize(("excess", "expected"), [(1, "c"), (2, "cb"), (9, "cba")])
def test_of_calls_above_the_limit_no_more_are_ended_than_are_above_it(excess: int, expected: str) -> None:
    shedder = Shedder(Shedding(over=1, share=0.75))
    shedder.note([], excess)
    assert chosen(shedder) == expected


def test_reasons_of_watchers_end_a_share_however_few_are_above_the_limit() -> None:
    shedder = Shedder(Shedding(after=1, over=1, share=0.75))
    shedder.note(["memory"], 1)
    assert chosen(shedder) == "cba"


def test_calls_above_the_limit_are_no_reason_unless_that_is_wanted() -> None:
    shedder = Shedder(Shedding())
    for _ in range(9):
        shedder.note([], 5)
    assert chosen(shedder) == ""


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"after": 0}, ValueError, r"after \(periods\) must be at least 1, not 0"),
        ({"after": 1.5}, TypeError, r"after \(periods\) must be a whole number, not 1.5"),
        ({"over": 0}, ValueError, r"over \(periods\) must be at least 1, not 0"),
        ({"over": "long"}, TypeError, r"over \(periods\) must be a whole number, not 'long'"),
        ({"share": 0}, ValueError, "share must be at least 1e-06 and at most 1, not 0"),
        ({"share": 1.1}, ValueError, "not 1.1"),
    ],
)
def test_wrong_shedding(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Shedding(**options)  # type: ignore[arg-type]

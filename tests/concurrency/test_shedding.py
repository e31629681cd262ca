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


def chosen(shedder: Shedder, *periods: tuple[list[str], int]) -> str:
    """The calls that end after the last of these periods, by what was seen and the calls above the limit."""
    found: list[Call] = []
    for events, excess in periods:
        found = shedder.choose(events, excess, CALLS)
    return "".join(call.operation for call in found)


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
    assert chosen(Shedder(Shedding()), *((["memory"] * bad, 0) for bad in rounds)) == expected


@pytest.mark.parametrize(("share", "expected"), [(0.01, "c"), (0.25, "c"), (0.26, "cb"), (0.75, "cba"), (1, "cbad")])
def test_the_least_and_of_them_the_youngest_first(share: float, expected: str) -> None:
    assert chosen(Shedder(Shedding(after=1, share=share)), (["memory"], 0)) == expected


def test_an_order_of_ones_own() -> None:
    def oldest(call: Call) -> int:
        return call.start_ns

    assert chosen(Shedder(Shedding(after=1, key=oldest)), (["cpu"], 0)) == "a"


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
    assert chosen(Shedder(Shedding(over=2)), *(([], excess) for excess in excesses)) == expected


@pytest.mark.parametrize(("excess", "expected"), [(1, "c"), (2, "cb"), (9, "cba")])
def test_of_calls_above_the_limit_no_more_are_ended_than_are_above_it(excess: int, expected: str) -> None:
    assert chosen(Shedder(Shedding(over=1, share=0.75)), ([], excess)) == expected


def test_reasons_of_watchers_end_a_share_however_few_are_above_the_limit() -> None:
    assert chosen(Shedder(Shedding(after=1, over=1, share=0.75)), (["memory"], 1)) == "cba"

"""The benchmark of tokens and a permit at once."""

from collections.abc import Callable, Iterator

import pytest

from benchmarks.admission import tasks, threads
from benchmarks.figures import Figure


@pytest.mark.parametrize("part", [threads, tasks])
def test_a_round_shows_both_and_their_ratio(part: Callable[[int, int], Iterator[Figure]]) -> None:
    together, alone, ratio = part(1, 10)
    assert together.value > 0
    assert alone.value > 0
    assert ratio.value == pytest.approx(together.value / alone.value)

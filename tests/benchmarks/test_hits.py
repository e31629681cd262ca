"""What is said of hits is of what was timed, in turn."""

import pytest

from benchmarks.hits import FLOOR, blocks, hit


def test_every_kind_of_hit_has_a_time_and_a_ratio() -> None:
    values = {figure.name: figure.value for figure in hit("memory://", 1)}
    ratio = values["hit: await try_acquire(key)"] / values[f"hit: {FLOOR}"]
    assert values["hit: await try_acquire(key) / floor"] == pytest.approx(ratio)
    assert len(values) % 2 == 1  # the floor has no ratio to itself
    assert all(value > 0 for value in values.values())


def test_hits_leave_nothing_in_memory() -> None:
    assert [figure.value for figure in blocks("memory://")] == [0, 0]

"""How many instances there are, as a table of (when a key told how many, how many there are now)."""

import pytest

from batchlimit.reservoir.bucket_view import InstanceCount


@pytest.mark.parametrize(
    ("told", "instances"),
    [
        ([], 0),
        ([(100.0, 3)], 3),
        ([(100.0, 3), (101.0, 1)], 3),
        ([(100.0, 1), (159.0, 4)], 4),
        ([(100.0, 4), (161.0, 2)], 4),  # the minute before counts still
        ([(100.0, 4), (161.0, 2), (222.0, 1)], 2),
        ([(100.0, 4), (300.0, 2)], 2),  # two minutes later: nothing is left of it
        ([(100.0, 4), (101.0, 1), (102.0, 1)], 4),
        ([(100.0, 4), (160.0, 1), (165.0, 1), (215.0, 1), (225.0, 1)], 1),  # a minute ends with its last instant
        ([(100.0, 4), (220.0, 1)], 1),
        ([(100.0, 4), (250.0, 2)], 2),
        ([(100.0, 4), (300.0, 0)], 0),
        ([(100.0, 9), (159.9, 9), (161.0, 1), (200.0, 2), (225.0, 1)], 2),
    ],
)
def test_the_most_of_the_last_minute_or_two(told: list[tuple[float, int]], instances: int) -> None:
    instance_count = InstanceCount()
    for now, n in told:
        instance_count.learn(n, now)
    assert instance_count.instances == instances

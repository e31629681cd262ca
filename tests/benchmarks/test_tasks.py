"""The async front's part of what a limiter costs within one process."""

import pytest

from benchmarks.local import hit
from benchmarks.tasks import crowds
from tests.servers import Servers, Unavailable


def test_a_crowd_of_tasks_makes_two_calls_one_at_a_time_and_nobody_is_refused(servers: Servers) -> None:
    try:
        server = servers.get("valkey")
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert [figure.value for figure in crowds(server.url, 1)] == [2, 1, 0]


def test_hits_of_both_fronts_are_timed_in_turn() -> None:
    values = {figure.name: figure.value for figure in hit("memory://", 1)}
    assert values["hit: try_acquire"] > 0
    assert values["hit: await try_acquire"] > 0
    assert values["hit: async/threaded"] == pytest.approx(values["hit: await try_acquire"] / values["hit: try_acquire"])
    assert values["hit: blocks that stay, awaited"] == 0

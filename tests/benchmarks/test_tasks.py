"""What AsyncRateLimiter adds to what a limiter costs within one process."""

import pytest

from benchmarks.tasks import crowds
from tests.servers import Server


@pytest.mark.usefixtures("far_away")
def test_a_crowd_of_tasks_makes_three_calls_one_at_a_time_and_nobody_is_refused(valkey: Server) -> None:
    assert [figure.value for figure in crowds(valkey.url, 1)] == [3, 1, 0]

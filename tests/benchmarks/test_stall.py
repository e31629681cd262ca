"""What is said about the event loop is what happened on it."""

import math

import pytest

from benchmarks import heartbeat
from benchmarks.stall import stall
from tests.servers import Server


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_WARM_UP", 0.1)


def test_all_of_it_runs_and_says_a_number_for_everything(valkey: Server) -> None:
    figures = list(stall(valkey.url, 0.1, 1))
    assert len({figure.name for figure in figures}) == len(figures)
    assert all(math.isfinite(figure.value) for figure in figures)
    assert [figure.name for figure in figures if figure.at_most is not None] == [
        "stall: caused by the limiter, p99.9",
        "stall: caused by the limiter without a client, p99.9",
    ]

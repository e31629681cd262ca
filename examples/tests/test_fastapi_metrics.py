"""FastAPI with metrics: the application as it stands, in frozen time."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from batchlimit.testing import FrozenLimits
from examples.fastapi_metrics import app


@pytest.fixture
def client(frozen_limits: FrozenLimits) -> Iterator[TestClient]:
    with TestClient(app) as client:
        yield client


def test_all_callers_share_a_hundred_searches_an_hour(client: TestClient, frozen_limits: FrozenLimits) -> None:
    frozen_limits.drain("search:all")
    assert client.get("/search").status_code == 429
    frozen_limits.advance(36)
    assert [client.get("/search").status_code for _ in range(2)] == [200, 429]


def test_metrics_tell_of_the_limits(client: TestClient) -> None:
    assert client.get("/search").status_code == 200
    assert "batchlimit" in client.get("/metrics").text

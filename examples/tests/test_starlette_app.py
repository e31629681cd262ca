"""Starlette: the application as it stands, in frozen time."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from batchlimit.testing import FrozenLimits, assert_limited
from examples.starlette_app import app


@pytest.fixture
def client(frozen_limits: FrozenLimits) -> Iterator[TestClient]:
    with TestClient(app, client=("192.0.2.1", 5000)) as client:
        yield client


@pytest.mark.parametrize("path", ["/search", "/v1/search"])
def test_each_address_has_ten_searches_a_minute(client: TestClient, path: str) -> None:
    assert_limited(client.get, path, after=10, within="1m")


def test_an_upload_costs_two_searches(client: TestClient) -> None:
    assert_limited(client.post, "/upload", after=5)
    assert client.get("/search").json()["violated-policies"] == ["search"]

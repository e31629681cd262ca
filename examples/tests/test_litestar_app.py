"""Litestar: the application as it stands, in frozen time."""

from collections.abc import Iterator

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from batchlimit.testing import FrozenLimits, assert_limited
from examples.litestar_app import app

ANN, BOB = {"x-api-key": "secret-of-ann"}, {"x-api-key": "secret-of-bob"}


@pytest.fixture
def client(frozen_limits: FrozenLimits) -> Iterator[TestClient[Litestar]]:
    with TestClient(app) as client:
        yield client


def test_each_user_has_ten_searches_a_minute(client: TestClient[Litestar]) -> None:
    assert_limited(client.get, "/api/search?q=x", headers=ANN, after=10, within="1m")
    assert client.get("/api/search?q=x", headers=BOB).status_code == 200


def test_a_report_costs_five_searches(client: TestClient[Litestar]) -> None:
    assert_limited(client.get, "/api/report", headers=ANN, after=2)
    assert client.get("/api/search?q=x", headers=ANN).json()["violated-policies"] == ["search"]


def test_only_failed_logins_are_charged(client: TestClient[Litestar]) -> None:
    words = ["correct", *["wrong"] * 5, "correct"]
    statuses = [client.post("/login", params={"password": word}).status_code for word in words]
    assert statuses == [200, *[401] * 5, 429]

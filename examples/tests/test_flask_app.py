"""Flask: the application as it stands, in frozen time."""

import pytest
from flask.testing import FlaskClient

from batchlimit.testing import FrozenLimits, assert_limited
from examples.flask_app import app


@pytest.fixture
def client(frozen_limits: FrozenLimits) -> FlaskClient:
    return app.test_client()


def test_each_user_has_two_searches_a_minute(client: FlaskClient) -> None:
    assert_limited(client.get, "/search", headers={"x-user": "ann"}, after=2, within="1m")
    refused = client.get("/search", headers={"x-user": "ann"})
    assert refused.text == "search: too many requests\n"
    assert refused.headers["ratelimit"].startswith('"search";r=0')
    assert client.get("/search", headers={"x-user": "bob"}).status_code == 200


def test_only_failed_logins_are_charged(client: FlaskClient) -> None:
    words = ["open sesame", *["guess"] * 6]
    assert [client.post("/login", data={"password": word}).status_code for word in words] == [204, *[401] * 5, 429]

"""Django: the project as it stands, in frozen time."""

import pytest
from django.core.management import call_command
from django.test import Client

from batchlimit.testing import FrozenLimits, assert_limited
from examples import django_site

assert django_site.wsgi is not None  # it has set Django up


@pytest.fixture
def client(frozen_limits: FrozenLimits) -> Client:
    return Client()


def test_each_user_has_two_searches_a_minute(client: Client) -> None:
    assert_limited(client.get, "/search", headers={"x-user": "ann"}, after=2, within="1m")


def test_only_failed_logins_are_charged(client: Client) -> None:
    words = ["open sesame", *["guess"] * 6]
    assert [client.post("/login", {"password": word}).status_code for word in words] == [204, *[401] * 5, 429]


def test_the_settings_are_sound(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("check")
    assert "no issues" in capsys.readouterr().out

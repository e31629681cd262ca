"""Quart: the application as it stands, in frozen time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from quart.typing import TestClientProtocol as Client

from batchlimit.testing import assert_limited
from examples.quart_app import app

ADDRESS = {"client": ("192.0.2.1", 50_000)}
pytestmark = pytest.mark.usefixtures("frozen_limits")


def run(story: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with app.test_app() as running:
            await story(running.test_client())

    asyncio.run(main())


def test_each_user_has_two_searches_and_two_reports_a_minute() -> None:
    async def story(client: Client) -> None:
        await assert_limited(client.get, "/search", headers={"x-user": "ann"}, after=2, within="1m")
        await assert_limited(client.get, "/reports/sales", headers={"x-user": "bob"}, after=2, within="1m")

    run(story)


def test_only_failed_logins_are_charged() -> None:
    async def story(client: Client) -> None:
        words = ["open sesame", *["guess"] * 6]
        calls = [client.post("/login", form={"password": word}, scope_base=ADDRESS) for word in words]
        assert [(await call).status_code for call in calls] == [204, *[401] * 5, 429]

    run(story)

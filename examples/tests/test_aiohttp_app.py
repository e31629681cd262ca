"""aiohttp: the application as it stands, in frozen time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient as Client
from aiohttp.test_utils import TestServer as Server

from batchlimit.testing import FrozenLimits, assert_limited
from examples.aiohttp_app import make_app

pytestmark = pytest.mark.usefixtures("frozen_limits")


def run(story: Callable[["Client[web.Request, web.Application]"], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Client(Server(make_app())) as client:
            await story(client)

    asyncio.run(main())


def test_each_user_has_two_searches_a_minute() -> None:
    async def story(client: "Client[web.Request, web.Application]") -> None:
        await assert_limited(client.get, "/search", headers={"x-user": "ann"}, after=2, within="1m")

    run(story)


def test_only_failed_logins_are_charged(frozen_limits: FrozenLimits) -> None:
    async def story(client: "Client[web.Request, web.Application]") -> None:
        words = ["open sesame", *["guess"] * 6]
        statuses = [(await client.post("/login", data={"password": word})).status for word in words]
        assert statuses == [204, *[401] * 5, 429]
        frozen_limits.advance(12)
        assert (await client.post("/login", data={"password": "guess"})).status == 401

    run(story)


def test_a_chat_is_closed_after_twenty_messages() -> None:
    async def story(client: "Client[web.Request, web.Application]") -> None:
        async with client.ws_connect("/chat") as websocket:
            with suppress(ConnectionError):
                for _ in range(21):
                    await websocket.send_str("hello")
            heard = [message async for message in websocket]
        assert (len(heard), websocket.close_code) == (20, 1008)

    run(story)

"""How many requests of an aiohttp application are under way at once: what needs a permit, and what it sends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from batchlimit import AsyncConcurrencyLimiter
from batchlimit.integrations.aiohttp import concurrency_limits
from batchlimit.laws import Fixed
from tests.integrations.made.aiohttp import echo
from tests.integrations.test_aiohttp import hello, served


@asynccontextmanager
async def serving(*routes: web.RouteDef) -> AsyncIterator[tuple[AsyncConcurrencyLimiter, str, aiohttp.ClientSession]]:
    """Serve these routes, one request at once."""
    async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
        app = web.Application(middlewares=[concurrency_limits(limiter)])
        app.add_routes(routes)
        async with served(app) as url, aiohttp.ClientSession() as client:
            yield limiter, url, client


async def status(client: aiohttp.ClientSession, url: str, **fields: str) -> int:
    async with client.get(url, headers=fields) as reply:
        await reply.read()
        return reply.status


async def test_who_asks_for_a_websocket_where_there_is_none_needs_a_permit() -> None:
    async with serving(web.get("/", hello)) as (limiter, url, client), limiter.acquire():
        assert await status(client, url, Upgrade="websocket", Connection="upgrade") == 503


async def test_a_websocket_gives_its_permit_back_when_it_is_open() -> None:
    async with (
        serving(web.get("/", hello), web.get("/ws", echo)) as (limiter, url, client),
        client.ws_connect(url + "/ws") as websocket,
    ):
        assert await status(client, url) == 200
        assert limiter.statistics().ignored == 1
        await websocket.send_str("hello")
        assert await websocket.receive_str() == "hello"


@pytest.mark.parametrize(("fields", "wanted"), [({}, (200, b"file")), ({"Range": "bytes=0-1"}, (206, b"fi"))])
async def test_a_file_is_sent_once(
    fields: dict[str, str], wanted: tuple[int, bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"file")

    async def file(request: web.Request) -> web.FileResponse:
        return web.FileResponse(tmp_path / "file")

    async with serving(web.get("/", file)) as (_, url, client):
        for _ in range(2):  # on one connection, and with one permit
            async with client.get(url, headers=fields) as reply:
                assert (reply.status, await reply.read()) == wanted
    assert not caplog.records


async def test_what_is_no_response_is_told_by_aiohttp_and_keeps_no_permit(caplog: pytest.LogCaptureFixture) -> None:
    async def forgetful(request: web.Request) -> Any:
        return None

    async with serving(web.get("/", forgetful)) as (limiter, url, client):
        assert await status(client, url) == 500
        assert limiter.statistics().in_flight == 0
    assert "Missing return statement" in caplog.text

"""Each framework behind a real server, with real clients and a real store."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from batchlimit.rules import Rules
from batchlimit.stores import RedisStore
from tests.integrations.faces.rules import RULES
from tests.integrations.faces.test_matrix import FACES
from tests.integrations.structured import read_limits
from tests.servers import Server, redis_server, valkey_binary

DEADLINE = 100.0
ROOT = Path(__file__).parents[3]


class Served:
    """A server process, and how to speak to it."""

    def __init__(self, process: "subprocess.Popen[str]", client: httpx.Client, prefix: str) -> None:
        self.process, self.client, self.prefix = process, client, prefix

    def get(self, path: str, user: str, **fields: str) -> httpx.Response:
        return self.client.get(path, headers={"x-user": user, **fields})

    def stop(self) -> None:
        """Stop as an operator does: by then all tokens have gone back."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE) in (0, -signal.SIGTERM)


@contextlib.contextmanager
def serving(face: str, url: str) -> Iterator[Served]:
    prefix = f"faces-{os.getpid()}-{face}-{os.urandom(4).hex()}"
    command = [sys.executable, "-m", "tests.integrations.faces.serve", face, url, prefix]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        address = f"http://127.0.0.1:{int(process.stdout.readline())}"
        with httpx.Client(base_url=address, timeout=DEADLINE, trust_env=False) as client:
            yield Served(process, client, prefix)
    finally:
        process.terminate()
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.parametrize("face", FACES)
def test_a_server_refuses_beyond_each_limit_and_gives_back_what_is_left(face: str, servers: Any) -> None:
    url = servers.get("valkey").url
    with serving(face, url) as served:
        for path in ("/search", "/included/search", "/mounted/search"):
            with ThreadPoolExecutor(6) as pool:
                replies = list(pool.map(lambda _, path=path: served.get(path, path[1:3]), range(6)))
            assert sorted(each.status_code for each in replies) == [200] * 2 + [429] * 4
            for reply in replies:
                limits = read_limits({name.lower(): value for name, value in reply.headers.raw})
                assert (limits["search"].q, limits["search"].w) == (5, 3600)
                assert ("retry-after" in reply.headers) == (reply.status_code == 429)
        assert served.get("/stream", "whole").text == "000000000011111111112222222222"
        with served.client.stream("GET", "/stream", headers={"x-user": "gone"}) as reply:
            assert next(reply.iter_bytes())
        # A server closes the connection of an application that raised.
        broken = [served.get("/broken", "ann", connection="close").status_code for _ in range(3)]
        assert broken == [500, 500, 429]
        _websockets(served)
        served.stop()
        found = _levels(url, served.prefix)
    assert (found["bytes:whole"], found["search:se"]) == (70, 1)
    assert found["bytes:gone"] >= 70  # at most all of it was sent


def _websockets(served: Served) -> None:
    url = f"ws://127.0.0.1:{served.client.base_url.port}/ws"
    with connect(url, additional_headers={"x-user": "ann"}, proxy=None) as websocket:
        websocket.send("hello")
        assert websocket.recv(DEADLINE) == "hello"
        assert websocket.response is not None
        assert websocket.response.headers["RateLimit"].startswith('"handshake";r=0')
    with pytest.raises(InvalidStatus) as caught:
        connect(url, additional_headers={"x-user": "ann"}, proxy=None)
    assert caught.value.response.status_code == 429
    assert int(caught.value.response.headers["Retry-After"]) >= 1


def _levels(url: str, prefix: str) -> dict[str, float]:
    store = RedisStore.from_url(url, prefix=prefix)
    try:
        quotas = Rules(RULES).quotas
        keys = ("bytes:whole", "bytes:gone", "search:se")
        return {key: store.peek(key, quotas[f"{key.split(':')[0]}:*"]).level for key in keys}
    finally:
        store.close()


@pytest.mark.parametrize("face", FACES)
def test_a_store_that_is_killed_under_load_is_a_503_and_never_a_500(face: str) -> None:
    with redis_server(valkey_binary()) as url, serving(face, url) as served:
        pid = Server("own", url).client().info("server")["process_id"]
        found = []
        for number in range(60):
            if number == 20:
                os.kill(pid, signal.SIGKILL)
            found.append((number % 2, served.get(("/open", "/closed")[number % 2], "ann").status_code))
        assert {status for kind, status in found if kind == 0} == {200}
        assert {status for kind, status in found if kind == 1} <= {200, 503}
        assert found[-1] == (1, 503)

"""The middleware behind a real uvicorn, with real clients and a real store."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from batchlimit.rules import Rules
from batchlimit.stores import RedisStore
from tests.integrations.clients import DEADLINE, Clients
from tests.integrations.served import RULES
from tests.integrations.structured import read_limits
from tests.integrations.websocket import closed_after_two, echoed, shake
from tests.servers import Server
from tests.sync.stage import until

ROOT = Path(__file__).parents[2]


class Served:
    """The server, and how to speak to it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.clients = Clients(port)

    @property
    def client(self) -> httpx.Client:
        """This thread's."""
        return self.clients.own

    def get(self, path: str, user: str, method: str = "GET", **options: Any) -> httpx.Response:
        return self.client.request(method, path, headers={"x-user": user}, **options)

    def left(self, key: str) -> int:
        found: int = self.client.get("/left", params={"key": key}).json()["left"]
        return found

    def until_left(self, key: str, wanted: int) -> None:
        """Wait for what happens in the server when it hears that a client has disconnected."""
        until(lambda: self.left(key) == wanted)

    @contextlib.contextmanager
    def raw(self, data: bytes) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE) as connection:
            connection.sendall(data)
            yield connection

    def whole(self, data: bytes) -> bytes:
        """All that is answered until the server closes the connection."""
        with self.raw(data) as connection:
            return b"".join(iter(lambda: connection.recv(65536), b""))


@contextlib.contextmanager
def serving(url: str, prefix: str) -> Iterator[tuple[Served, "subprocess.Popen[str]"]]:
    command = [sys.executable, "-m", "tests.integrations.served", url, prefix]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        served = Served(int(process.stdout.readline()))
        with served.clients:
            yield served, process
    finally:
        process.terminate()
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="module")
def served(servers: Any) -> Iterator[Served]:
    with serving(servers.get("valkey").url, f"served-{os.getpid()}") as (served, _):
        yield served


def test_of_a_burst_as_many_as_the_limit_are_admitted_also_in_a_mount(served: Served) -> None:
    with ThreadPoolExecutor(10) as pool:
        replies = list(pool.map(lambda _: served.get("/hello/ann", "burst"), range(10)))
    assert sorted(each.status_code for each in replies) == [200] * 3 + [429] * 7
    for reply in replies:
        limit = read_limits({name.lower(): value for name, value in reply.headers.raw})["burst"]
        assert limit.q == 3
        assert limit.w == 3600
        assert (b"Retry-After" in dict(reply.headers.raw)) or ("retry-after" in reply.headers) == (
            reply.status_code == 429
        )
    refused = next(each for each in replies if each.status_code == 429)
    assert 1 <= int(refused.headers["retry-after"]) <= 1.1 * 1201
    assert refused.headers["cache-control"] == "no-store"
    assert refused.json()["violated-policies"] == ["burst"]


def test_a_head_is_refused_without_a_body_and_the_connection_goes_on(served: Served) -> None:
    statuses = [served.get("/hello/ann", "head", "HEAD") for _ in range(4)]
    assert [each.status_code for each in statuses] == [200, 200, 200, 429]
    assert statuses[-1].content == b""
    assert served.get("/items/1", "head").text == "1"


def test_http_1_0_is_limited_too(served: Served) -> None:
    request = b"GET /hello/ann HTTP/1.0\r\nX-User: old\r\n\r\n"
    starts = [served.whole(request).split(b"\r\n")[0].split()[1] for _ in range(4)]
    assert starts == [b"200", b"200", b"200", b"429"]


@pytest.mark.parametrize("path", [b"/items/" + b"x" * 10_000, b"/items/%ff%fe", b"/items/%00", b"//items/%2f%2e"])
def test_strange_paths_are_answered_and_never_by_a_500(served: Served, path: bytes) -> None:
    answer = served.whole(b"GET " + path + b" HTTP/1.0\r\n\r\n")
    assert answer.split()[1] in (b"200", b"404")


def test_only_failed_logins_are_charged(served: Served) -> None:
    statuses = [served.get("/login", "ann", "POST", content=str(status)).status_code for status in (200, 401, 200, 401)]
    assert statuses == [200, 401, 200, 401]
    assert served.get("/login", "ann", "POST", content="200").status_code == 429


def test_a_stream_arrives_whole_and_is_charged_by_what_was_sent(served: Served) -> None:
    reply = served.get("/stream/whole", "whole")
    assert reply.content == b"000000000011111111112222222222"
    served.until_left("bytes:whole", 70)


def test_a_stream_whose_client_goes_away_is_charged_by_what_was_sent(served: Served) -> None:
    with served.client.stream("GET", "/stream/held", headers={"x-user": "gone"}) as reply:
        parts = reply.iter_bytes()  # when it is forgotten, the client goes away
        assert next(parts) == b"0" * 10
        assert served.left("bytes:gone") == 50
    served.until_left("bytes:gone", 90)


def test_a_stream_that_breaks_is_charged_by_what_was_sent(served: Served) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        served.get("/stream/broken", "broken")
    served.until_left("bytes:broken", 70)


def test_an_application_that_raises_is_a_500_of_its_own_and_settled(served: Served) -> None:
    # A server may close the connection of an application that raised.
    statuses = [served.whole(b"GET /broken/x HTTP/1.0\r\nX-User: raises\r\n\r\n").split()[1] for _ in range(3)]
    assert statuses == [b"500", b"500", b"429"]


def test_a_client_that_goes_away_amid_its_body_is_settled(served: Served) -> None:
    half = b"POST /broken/x HTTP/1.1\r\nHost: x\r\nX-User: half\r\nContent-Length: 100\r\n\r\nhalf"
    with served.raw(half):
        served.until_left("broken:half", 1)
    served.until_left("broken:half", 2)


def test_a_client_that_goes_away_amid_its_head_costs_nothing(served: Served) -> None:
    with served.raw(b"GET /hello/ann HTTP/1.1\r\nX-User: head"):
        pass
    assert served.left("burst:head-only") == 3


def test_a_websocket_is_refused_with_a_response_that_says_when(served: Served) -> None:
    with shake(served.port, "/refused", "ws") as websocket:
        assert echoed(websocket, "hello") == "hello"
        assert websocket.response is not None
        assert websocket.response.headers["RateLimit"].startswith('"handshake";r=0')
    with pytest.raises(InvalidStatus) as caught:
        shake(served.port, "/refused", "ws")
    response = caught.value.response
    assert response.status_code == 429
    assert int(response.headers["Retry-After"]) >= 1


def test_a_websocket_that_floods_is_closed(served: Served) -> None:
    with shake(served.port, "/chat", "flood") as websocket:
        assert closed_after_two(websocket) == 1008


def test_when_the_server_stops_its_tokens_go_back(valkey: Server, valkey_store: RedisStore, prefix: str) -> None:
    with serving(valkey.url, prefix) as (served, process):
        assert served.get("/hello/ann", "stops").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) in (0, -signal.SIGTERM)
    assert valkey_store.peek("burst:stops", Rules(RULES).quotas["burst:*"]).level == 2  # it had leased all three

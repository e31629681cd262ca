"""Bad input and bad moments before a real uvicorn and a real gunicorn: nothing is served uncharged, nothing leaks."""

import contextlib
import http.client
import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integrations.worker_commands import DEADLINE, GUNICORN, ROOT, working
from tests.sync.stage import until

COMMANDS = {
    "uvicorn": ["uvicorn", "--fd={fd}", "--log-level=critical", "tests.integrations.exposed_apps:asgi"],
    "gunicorn": [
        *[*GUNICORN, "--workers=1", "--worker-class=gthread", "--threads=4", "--bind=fd://{fd}"],
        *["--log-level=critical", "tests.integrations.exposed_apps:wsgi"],
    ],
}
_END = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
_POST = b"POST /limited" + _END


def get(target: bytes, fields: bytes = b"", method: bytes = b"GET") -> bytes:
    return method + b" " + target + _END + fields + b"\r\n"


REQUESTS = {
    "plain": get(b"/limited"),
    "HTTP/1.0": b"GET /limited HTTP/1.0\r\n\r\n",
    "HEAD": get(b"/limited", method=b"HEAD"),
    "OPTIONS": get(b"/limited", method=b"OPTIONS"),
    "lower case method": get(b"/limited", method=b"get"),
    "preflight": get(b"/limited", b"Origin: http://a\r\nAccess-Control-Request-Method: GET\r\n", b"OPTIONS"),
    "unknown method": get(b"/limited", method=b"BREW"),
    "path of 10 kB": get(b"/items/" + b"x" * 10_000),
    "path of 60 kB": get(b"/items/" + b"x" * 60_000),
    "no UTF-8": get(b"/items/%ff%fe"),
    "no UTF-8, bare": get(b"/items/\xff\xfe"),
    "nul": get(b"/items/%00"),
    "line separator": get(b"/items/%e2%80%a8"),
    "newline within": get(b"/items/a%0ab"),
    "newline at the end": get(b"/limited%0a"),
    "tab at the end": get(b"/limited%09"),
    "encoded letter": get(b"/%6cimited"),
    "encoded slash": get(b"/items%2f7"),
    "encoded question mark": get(b"/limited%3fx"),
    "slash at the end": get(b"/limited/"),
    "two slashes": get(b"//limited"),
    "three slashes": get(b"///limited"),
    "dot": get(b"/./limited"),
    "two dots": get(b"/x/../limited"),
    "backslash": get(b"/\\limited"),
    "query": get(b"/limited?a=b"),
    "fragment": get(b"/limited#x"),
    "semicolon": get(b"/limited;x"),
    "upper case": get(b"/LIMITED"),
    "absolute": get(b"http://x/limited"),
    "no slash": get(b"limited"),
    "star": get(b"*", method=b"OPTIONS"),
    "length and chunks": _POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get(b"/limited"),
    "two lengths": _POST + b"Content-Length: 5\r\nContent-Length: 0\r\n\r\n" + get(b"/limited"),
    "space before the colon": _POST + b"Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "unknown coding": _POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "folded field": get(b"/limited", b"X-A: a\r\n b\r\n"),
    "bare line feeds": b"GET /limited HTTP/1.1\nHost: x\nConnection: close\n\n",
    "three at once": b"GET /limited HTTP/1.1\r\nHost: x\r\n\r\n" * 2 + get(b"/limited"),
    "a request behind a body": b"POST /limited HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi" + get(b"/limited"),
    "field of 60 kB": get(b"/limited", b"X-A: " + b"a" * 60_000 + b"\r\n"),
    "150 fields": get(b"/limited", b"".join(b"X-%d: a\r\n" % number for number in range(150))),
}
_FROM = b"X-Forwarded-For: "
HOPS = {
    "others further left": [_FROM + b"192.0.2.%d, 198.51.100.1" % number for number in range(4)],
    "others in a field before": [_FROM + b"192.0.2.%d\r\n" % number + _FROM + b"198.51.100.2" for number in range(4)],
    "a field of the other spelling": [
        b"X_Forwarded_For: 192.0.2.%d\r\n" % number + _FROM + b"198.51.100.3" for number in range(4)
    ],
    "100 trusted ones": [_FROM + b"198.51.100.4" + b", 10.0.0.1" * 100] * 4,
    "100 others": [
        _FROM + b", ".join(b"192.%d.2.%d" % (number, hop) for hop in range(100)) + b", 198.51.100.5"
        for number in range(4)
    ],
}


class Exposed:
    """The server, and how to trouble it."""

    def __init__(self, port: int) -> None:
        self.port = port

    @contextlib.contextmanager
    def begun(self, data: bytes) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE) as connection:
            connection.sendall(data)
            yield connection

    def statuses(self, data: bytes) -> list[str]:
        """The statuses of all that is answered until the server closes the connection."""
        told = b""
        with contextlib.suppress(ConnectionError), self.begun(data) as connection:
            while part := connection.recv(65536):
                told += part
        return [each.decode() for each in re.findall(rb"HTTP/1\.[01] (\d{3})", told)]

    def told(self) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        with contextlib.closing(connection):
            connection.request("GET", "/told", headers={"Connection": "close"})
            found: dict[str, Any] = json.loads(connection.getresponse().read())
            return found

    def until_charged(self, key: str, before: int, tokens: int) -> None:
        """Wait for what happens in the server when it hears that a client has disconnected."""
        until(lambda: before - self.told()["left"][key] == tokens)


@pytest.fixture(scope="module", params=COMMANDS)
def exposed(request: pytest.FixtureRequest) -> Iterator[Exposed]:
    with working(COMMANDS[request.param], ROOT) as crew:
        yield Exposed(crew.port)


@pytest.mark.parametrize("name", REQUESTS)
def test_nothing_is_served_that_is_not_charged_however_it_is_spelled(exposed: Exposed, name: str) -> None:
    before = exposed.told()
    statuses = exposed.statuses(REQUESTS[name])
    after = exposed.told()
    assert after["served"] - before["served"] <= after["charged"] - before["charged"]
    assert statuses
    assert "500" not in statuses
    assert exposed.statuses(REQUESTS["plain"]) == ["200"]


@pytest.mark.parametrize("name", HOPS)
def test_a_client_cannot_write_itself_another_address(exposed: Exposed, name: str) -> None:
    statuses = [exposed.statuses(get(b"/client", fields + b"\r\n")) for fields in HOPS[name]]
    assert statuses == [["200"], ["200"], ["200"], ["429"]]


@pytest.mark.parametrize("value", [b",", b"unknown", b"\xff\xfe", b"2001:db8::1%eth0", b"999.1.1.1", b"a" * 5000])
def test_an_address_that_is_none_is_no_500(exposed: Exposed, value: bytes) -> None:
    statuses = [exposed.statuses(get(b"/client", _FROM + value + b"\r\n")) for _ in range(4)]
    assert statuses[-1] == ["429"]
    assert {each for (each,) in statuses} <= {"200", "429"}


@pytest.mark.parametrize(
    "half",
    [
        b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
        b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf",
        b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
    ],
)
def test_a_client_that_goes_away_amid_its_body_is_settled(exposed: Exposed, half: bytes) -> None:
    before = exposed.told()["left"]["body"]
    with exposed.begun(half):
        exposed.until_charged("body", before, 10)
    exposed.until_charged("body", before, 1)


def test_a_client_that_goes_away_amid_a_response_is_settled(exposed: Exposed) -> None:
    before = exposed.told()["left"]["endless"]
    with exposed.begun(get(b"/endless")) as connection:
        assert connection.recv(10)
        exposed.until_charged("endless", before, 10)
    exposed.until_charged("endless", before, 1)


@pytest.mark.parametrize(("when", "status"), [("before", "500"), ("amid", "200")])
def test_an_application_that_raises_is_settled(exposed: Exposed, when: str, status: str) -> None:
    before = exposed.told()["left"]["raises"]
    assert exposed.statuses(get(b"/raises/" + when.encode())) == [status]
    exposed.until_charged("raises", before, 1)


def test_garbage_in_place_of_a_request_harms_nobody_else(exposed: Exposed) -> None:
    with exposed.begun(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), exposed.begun(b"GET /limited HTT"):
        assert exposed.statuses(REQUESTS["plain"]) == ["200"]

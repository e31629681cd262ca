"""One behaviour of all frameworks: each behind a real server, in a time that the test sets."""

import gc
import socket
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.depth import depth
from tests.integrations.clients import DEADLINE
from tests.integrations.matrix.serving import HTTP, WEBSOCKETS, Served, serving
from tests.integrations.websocket import closed_after_two, echoed, shake
from tests.integrations.worker_commands import ROOT, working

pytestmark = pytest.mark.filterwarnings("ignore:.*SpooledTemporaryFile:pytest.PytestUnraisableExceptionWarning")
_WITH_DEEP = ("asgi-hypercorn", "starlette", "litestar", "django-rest")
"""Their middlewares are those of other faces; tests/integrations/faces has each face in this process."""
_HEADS = ("starlette", "quart", "flask", "django", "aiohttp")
"""A view for GET answers HEAD there as well."""
_USUAL = [face for face in HTTP if face not in depth(_WITH_DEEP, ())]


@pytest.fixture(scope="module", params=_USUAL)
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(request.param) as served:
        yield served
    gc.collect()  # Django leaves a file open where a stream breaks


def test_a_stream_that_breaks_is_charged_by_what_was_sent(served: Served) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        served.get("/breaks", "broken", connection="close")
    served.until_left("bytes:broken", 70)


def test_a_stream_whose_client_goes_away_is_settled(served: Served) -> None:
    with served.client.stream("GET", "/endless", headers={"x-user": "gone"}) as reply:
        parts = reply.iter_raw()  # when it is forgotten, the client goes away
        assert next(parts)
        assert served.left("gone:gone") == 4
    served.until_left("gone:gone", 8)


@pytest.mark.parametrize("served", [face for face in WEBSOCKETS if face in _USUAL], indirect=True)
def test_a_websocket_is_refused_with_a_response_that_says_when(served: Served) -> None:
    with shake(served.port, "/ws", "ann") as websocket:
        assert echoed(websocket, "hello") == "hello"
        assert websocket.response is not None
        assert websocket.response.headers["RateLimit"].startswith('"handshake";r=0')
    with pytest.raises(InvalidStatus) as caught:
        shake(served.port, "/ws", "ann")
    assert caught.value.response.status_code == 429
    served.pass_by(int(caught.value.response.headers["Retry-After"]))
    with shake(served.port, "/ws", "ann"):
        pass


def test_a_server_that_answers_handshakes_by_itself_refuses_them_too() -> None:
    """Daphne does not tell the client when to come back, and closes with a code of its own: it knows no other."""
    command = ["daphne", "--fd={fd}", "--verbosity=0", "tests.integrations.matrix.alone:app"]
    with working(command, ROOT) as crew:
        with shake(crew.port, "/ws", "ann") as websocket:
            assert echoed(websocket, "hello") == "hello"
        with pytest.raises(InvalidStatus) as caught:
            shake(crew.port, "/ws", "ann")
        assert caught.value.response.status_code == 403
        with shake(crew.port, "/chat", "flood") as websocket:
            assert closed_after_two(websocket) == 1011


@pytest.mark.parametrize("served", [face for face in _HEADS if face in _USUAL], indirect=True)
def test_a_head_is_refused_without_a_body_and_the_connection_goes_on(served: Served) -> None:
    replies = [served.client.head("/search", headers={"x-user": "head"}) for _ in range(3)]
    assert [(each.status_code, each.content) for each in replies] == [(200, b""), (200, b""), (429, b"")]
    assert served.get("/hello").text.strip('"') == "hello"


def test_a_server_goes_on_after_clients_that_went_away_amid_their_requests(served: Served) -> None:
    for data in (
        b"GET /search HTTP/1.1\r\nX-User: amid",
        b"POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\nhalf",
    ):
        with socket.create_connection(("127.0.0.1", served.port), timeout=DEADLINE) as connection:
            connection.sendall(data)
    with httpx.Client(base_url=served.client.base_url, timeout=DEADLINE, trust_env=False) as client:
        assert client.get("/hello").status_code == 200
    assert served.left("search:amid") == 4

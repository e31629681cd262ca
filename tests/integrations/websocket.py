"""A client of websockets: one of a user shakes hands, speaks, and floods."""

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

DEADLINE = 100.0


def shake(port: int, path: str, user: str) -> ClientConnection:
    """Connect, or raise InvalidStatus where the handshake is refused."""
    return connect(f"ws://127.0.0.1:{port}{path}", additional_headers={"x-user": user}, proxy=None)


def echoed(websocket: ClientConnection, text: str) -> str | bytes:
    websocket.send(text)
    return websocket.recv(DEADLINE)


def closed_after_two(websocket: ClientConnection) -> int:
    """Send three messages, of which two are answered; return the code that the server closes with."""
    for number in range(3):
        websocket.send(str(number))
    assert [websocket.recv(DEADLINE) for _ in range(2)] == ["0", "1"]
    with pytest.raises(ConnectionClosed) as caught:
        websocket.recv(DEADLINE)
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code

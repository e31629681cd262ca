"""Sockets of the relay: bound ones, dialled ones, and ones that end without a goodbye."""

import socket
import struct
from urllib.parse import SplitResult, unquote

_NO_GOODBYE = struct.pack("ii", 1, 0)  # SO_LINGER for no time: what close() sends is a reset


def bound(port: int) -> socket.socket:
    """Return a socket that has this port of the loopback and does not listen; 0: any port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener


def dial(url: SplitResult) -> socket.socket:
    """Connect to the server at `url`, over TCP or at a path; OSError where there is none."""
    if url.scheme != "unix":
        return socket.create_connection((url.hostname or "127.0.0.1", url.port or 6379))
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(unquote(url.path))
    except OSError:
        server.close()
        raise
    return server


def knock(listener: socket.socket) -> None:
    """Stand in the queue of whoever connects to this listener, as far as it has room, and be gone."""
    with socket.socket() as visitor:
        visitor.setblocking(False)
        visitor.connect_ex(listener.getsockname())


def cut(end: socket.socket) -> None:
    """Close it so that the other end learns of a reset."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_GOODBYE)
    end.close()

"""A socket that a server is given to listen on."""

import socket


def listening() -> socket.socket:
    """Listen on a port of its own; every answer leaves at once.

    Servers see to that for sockets that they make. On those they are given, a small answer on a kept connection waits
    40 ms for what the client acknowledges.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted connections have it from here
    return listener

"""Ports of the loopback for servers that have to know theirs before they start."""

import functools
import itertools
import random
import socket
from collections.abc import Iterator

# Not the ports from which systems connect, 32768 and above: a connection may have one by the time that a server wants
# it. Nor are those 10,000 higher, which a node of a cluster wants for its bus.
_PORTS = range(10_000, 22_000)
_BLOCK = 100


def free_port() -> int:
    """A port that nobody has. It is given out once in a round of the block, and by no other process of these tests."""
    _, ports = _block()
    for port in itertools.islice(ports, _BLOCK):
        if _is_free(port):
            return port
    raise RuntimeError("no port of this process's block is free")


@functools.cache
def _block() -> tuple[socket.socket, Iterator[int]]:
    """The claim to a block of ports, a socket that has the first of them, and the others, round and round."""
    claim = socket.socket()
    firsts = _PORTS[::_BLOCK]
    first = next(first for first in random.sample(firsts, len(firsts)) if _bind(claim, first))
    return claim, itertools.cycle(range(first + 1, first + _BLOCK))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return _bind(probe, port)


def _bind(sock: socket.socket, port: int) -> bool:
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True

"""Servers of the tests: the ports that they get, and those that this machine lacks."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port

_FIFTY_PORTS = "from tests.ports import free_port; print(*(free_port() for _ in range(50)))"


def test_no_port_is_given_out_twice_before_its_server_has_it() -> None:
    """Nor does another process get it: the first port of the block is the claim to all of them."""
    ours = [free_port() for _ in range(50)]
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", min(ours) // 100 * 100))
    command = [sys.executable, "-c", _FIFTY_PORTS]
    theirs = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True)
    assert len({*ours, *map(int, theirs.stdout.split())}) == 100

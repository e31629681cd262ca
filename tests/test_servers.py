"""Servers of the tests: the ports that they get, and those that this machine lacks."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.programs import Unavailable
from tests.servers import reach_docker

_FIFTY_PORTS = "from tests.ports import free_port; print(*(free_port() for _ in range(50)))"


def test_where_no_docker_engine_listens_the_docker_package_opens_no_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would leave that open until it is collected, amid whatever test."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    monkeypatch.setattr("docker.transport.unixconn.UnixHTTPConnection.connect", _opened)
    with pytest.raises(Unavailable, match="No such file"):
        reach_docker()


def _opened(_connection: object) -> None:
    pytest.fail("the docker package opened a socket")


def test_no_port_is_given_out_twice_before_its_server_has_it() -> None:
    """Nor does another process get it: the first port of the block is the claim to all of them."""
    ours = [free_port() for _ in range(50)]
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", min(ours) // 100 * 100))
    command = [sys.executable, "-c", _FIFTY_PORTS]
    theirs = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True)
    assert len({*ours, *map(int, theirs.stdout.split())}) == 100

"""Servers of the tests that this machine lacks."""

from pathlib import Path

import pytest

from tests.programs import Unavailable
from tests.servers import reach_docker


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

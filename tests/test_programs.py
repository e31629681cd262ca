"""What this machine lacks skips the tests that ask for it, and says how to get it; nothing else skips one."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nodes import node
from tests.ports import free_port
from tests.programs import Unavailable, program
from tests.servers import DidNotStart, any_binary, redis_server, valkey_binary
from tests.tls import tls

ROOT = Path(__file__).parents[1]
VENV = Path(sys.executable).parent
TESTS = """
import pytest
from tests.programs import program

@pytest.fixture(scope="module")
def one(): return program("prometheus")

def test_asks_a_fixture(one): pass
def test_asks_it_too(one): pass
def test_asks_itself(): program("redis-server")
def test_fails(): assert False
"""


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with nothing on its PATH but the venv, which has the Redis of a wheel."""
    assert (VENV / "redis-server").exists()
    monkeypatch.setenv("PATH", str(VENV))


@pytest.mark.usefixtures("bare")
def test_a_test_that_asks_for_what_is_not_there_is_skipped_and_the_reason_is_shown(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [
        sys.executable,
        *["-m", "pytest", "-p", "tests.conftest", "-p", "no:randomly", "-rs"],
        f"--rootdir={tmp_path}",
    ]
    told = subprocess.run([*command, tmp_path], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert "1 failed, 3 skipped" in told
    assert "no prometheus on the PATH: apt-get install prometheus, or brew install prometheus" in told
    assert "no redis-server on the PATH: apt-get install redis-server, or brew install redis" in told


@pytest.mark.usefixtures("bare")
def test_the_redis_that_a_wheel_puts_into_the_venv_is_not_the_machines() -> None:
    with pytest.raises(Unavailable, match="no redis-server"):
        program("redis-server")
    assert any_binary() == valkey_binary()


def test_a_server_without_tls_is_told_from_one_that_did_not_start() -> None:
    with pytest.raises(Unavailable, match="no TLS: install"), tls(valkey_binary()):
        pytest.fail("it knows TLS")


@pytest.mark.parametrize("run", [node, redis_server])
def test_a_server_that_is_there_and_does_not_start_skips_nothing(run: object) -> None:
    assert callable(run)
    with pytest.raises(DidNotStart, match="no-such-option"), run(valkey_binary(), "--no-such-option", "1"):
        pytest.fail("it started")


# Servers of the tests: the ports that they get, and those that this machine lacks


_FIFTY_PORTS = "from tests.ports import free_port; print(*(free_port() for _ in range(50)))"


def test_no_port_is_given_out_twice_before_its_server_has_it() -> None:
    """Nor does another process get it: the first port of the block is the claim to all of them."""
    ours = [free_port() for _ in range(50)]
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", min(ours) // 100 * 100))
    command = [sys.executable, "-c", _FIFTY_PORTS]
    theirs = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True)
    assert len({*ours, *map(int, theirs.stdout.split())}) == 100

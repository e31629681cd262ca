"""What the command says of itself."""

import batchlimit
from tests.cli.conftest import Run


def test_the_version_is_that_of_the_package(run: Run) -> None:
    done = run("--version")
    assert (done.exit_code, done.stdout) == (0, f"batchlimit {batchlimit.__version__}\n")

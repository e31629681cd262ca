"""What tests of task queues share: workers as processes."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.servers import end

ROOT = Path(__file__).parents[3]


@contextlib.contextmanager
def processes(commands: Sequence[Sequence[str]], folder: Path, **environment: str) -> Iterator[None]:
    """Run these modules of Python meanwhile; their output is in the folder."""
    started: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(folder / "log", "wb"))
        for command in commands:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", *command],
                    env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
                    cwd=folder,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
            stack.callback(end, started[-1])
        yield

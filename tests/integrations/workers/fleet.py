"""What tests of task queues share: workers as processes, and an audit of what they admitted."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.servers import end

ROOT = Path(__file__).parents[3]
Span = tuple[float, float]
"""Between which two instants a task was admitted (s)."""


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


def excess(spans: Sequence[Span], rate: float, burst: int) -> float:
    """Return by how much the fullest window exceeds `burst + rate x T`; what lies across its edges is left out."""
    ends = sorted(spans, key=lambda span: span[1])
    worst = -float(burst)
    for begins, _ in spans:
        inside = [ended for began, ended in ends if began >= begins]
        worst = max(worst, *(n - burst - rate * (ended - begins) for n, ended in enumerate(inside, start=1)))
    return worst

"""Which tests pass through which lines."""

import inspect
import os
import pickle
import re
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import coverage
import pytest

from tests.mutate.changes import ROOT, Mutation

_ITSELF = re.compile(r"settrace|setprofile|opcodes|tests\.interrupts|tests\.work|interrupter")
_FORKS = "in_child("
"""Where a child passes nobody sees."""


class Reached(NamedTuple):
    """The tests by the lines that they pass through, and the seconds that each takes."""

    lines: dict[tuple[str, int], set[str]]
    seconds: dict[str, float]
    everywhere: set[str]
    """Tests that trace or interrupt by themselves, which may not be watched, and those that fork."""

    def by(self, mutation: Mutation) -> list[str]:
        """The tests that pass through a changed statement; all, if none does, as of a constant; the quickest first."""
        lines = (self.lines.get((str(mutation.path), line), set()) for line in mutation.lines)
        passing = set[str]().union(*lines) or self.seconds.keys()
        return sorted(self.everywhere | passing, key=self.seconds.__getitem__)

    def patience(self, *tests: str) -> float:
        """After so many seconds these tests hang: ten times what they took, and twenty more."""
        return 20 + 10 * sum(map(self.seconds.__getitem__, tests))


def reached(session: pytest.Session, paths: set[Path]) -> Reached | None:
    """Run each test once, in a process of its own for all, and see where it passes; None: one of them fails."""
    with tempfile.NamedTemporaryFile() as file:
        if (child := os.fork()) == 0:
            found = _seen(session, paths)
            Path(file.name).write_bytes(pickle.dumps(found))
            os._exit(0)
        os.waitpid(child, 0)
        return pickle.loads(Path(file.name).read_bytes())  # type: ignore[no-any-return]


def _seen(session: pytest.Session, paths: set[Path]) -> Reached | None:
    watch = coverage.Coverage(data_file=None, include=[str(ROOT / each) for each in paths])
    found = Reached({}, {}, set())
    for item, following in zip(session.items, [*session.items[1:], None], strict=True):
        began = time.perf_counter()
        if _traces_itself(item.path):
            found.everywhere.add(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        else:
            watch.start()
            watch.switch_context(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            watch.stop()
            if _FORKS in inspect.getsource(getattr(item, "obj", Reached)):
                found.everywhere.add(item.nodeid)
        found.seconds[item.nodeid] = time.perf_counter() - began
        if session.testsfailed:
            return None
    for path in paths:
        for line, tests in watch.get_data().contexts_by_lineno(str(ROOT / path)).items():
            found.lines[str(path), line] = set(tests) & found.seconds.keys()
    return found


@cache
def _traces_itself(path: Path) -> bool:
    return _ITSELF.search(path.read_text()) is not None


def fails(session: pytest.Session, tests: Sequence[str], patience: Callable[[str], float]) -> bool:
    """Run tests until one fails; what they share, such as servers, ends with them. One that hangs ends the process."""
    by_name = {each.nodeid: each for each in session.items}
    items = [by_name[each] for each in tests]
    for item, following in zip(items, [*items[1:], None], strict=False):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, patience(item.nodeid))
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            session._setupstate.teardown_exact(None)
            return True
    return False

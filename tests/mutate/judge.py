"""Whether a test notices a change: each change is made in a process of its own, forked where all tests are collected.

Code of functions, their defaults and constants are replaced where they are. What else runs when a module is imported,
such as fields, is changed in a process that has imported nothing yet, and there all tests run.
"""

import os
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from types import CodeType

import pytest

from tests.mutate.changes import ROOT, Mutation
from tests.mutate.children import in_children
from tests.mutate.patches import Patches
from tests.mutate.reached import fails, reached

_ANEW = 300.0
"""Seconds. A change with which all tests take longer was noticed."""
_ARGUMENTS = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly"]


def judged(mutations: list[Mutation], tests: list[str], jobs: int) -> Iterator[tuple[Mutation, bool]]:
    """Each change, and whether it survives; nothing if the tests fail without any."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        pytest.main([*_ARGUMENTS, "-s", *tests], plugins=[_Judge(mutations, jobs, write)])
        os._exit(0)
    os.close(write)
    at_import = []
    with os.fdopen(read) as told:
        for number, verdict in map(str.split, told):
            mutation = mutations[int(number)]
            if verdict == "import":
                at_import.append(mutation)
            else:
                yield mutation, verdict == "survives"
    os.waitpid(child, 0)
    yield from in_children(at_import, jobs, lambda each: _fail_anew(each, tests), lambda _: _ANEW)


class _Judge:
    """A plugin of pytest: once all tests are collected it makes the changes, instead of running the tests once."""

    def __init__(self, mutations: list[Mutation], jobs: int, told: int) -> None:
        self._mutations, self._jobs, self._told = mutations, jobs, told

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Tell of each change whether it survives, or that it is one of what an import runs."""
        paths = {each.path for each in self._mutations}
        if (tests := reached(session, paths)) is None:
            return True
        patches = Patches(paths)
        makers = [patches.of(each) for each in self._mutations]
        for number in (number for number, make in enumerate(makers) if make is None):
            self._tell(number, "import")

        def notices(number: int) -> bool:
            if make := makers[number]:
                make()
            return fails(session, tests.by(self._mutations[number]), tests.patience)

        rest = [number for number, make in enumerate(makers) if make is not None]
        for number, survives in in_children(
            rest, self._jobs, notices, lambda number: tests.patience(*tests.by(self._mutations[number]))
        ):
            self._tell(number, "survives" if survives else "noticed")
        return True

    def _tell(self, number: int, verdict: str) -> None:
        os.write(self._told, f"{number} {verdict}\n".encode())


def _fail_anew(mutation: Mutation, tests: list[str]) -> bool:
    """Whether a test fails in a process whose imports find the changed module."""
    path, plain = str(ROOT / mutation.path), SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        return mutation.code if self.path == path else plain(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]
    assert "batchlimit" not in sys.modules
    # pytest would load the package by its own loader, as of a plugin, to rewrite its assertions
    return pytest.main([*_ARGUMENTS, "-x", "--assert=plain", *tests]) != pytest.ExitCode.OK

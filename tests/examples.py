"""Runs the examples of docstrings, which may await at the prompt as in `python -m asyncio`."""

import ast
import asyncio
import doctest
from types import ModuleType
from typing import Any

from batchlimit import RateLimiter


class _Parser(doctest.DocTestParser):
    """Hands the source of each example to the prompt."""

    def parse(self, string: str, name: str = "<string>") -> list[str | doctest.Example]:
        found = super().parse(string, name)
        for each in found:
            if isinstance(each, doctest.Example):
                each.source = f"_prompt_({each.source!r}, globals())\n"
        return found


class _Prompt:
    """One event loop for the examples of a docstring."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __call__(self, source: str, names: dict[str, Any]) -> None:
        code = compile(source, "<example>", "single", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if (awaited := eval(code, names)) is not None:
            self._loop.run_until_complete(awaited)


def run_examples(module: ModuleType) -> doctest.TestResults:
    """Run all examples of a module, and print those that fail."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder(parser=_Parser()).find(module):
        if not test.examples:
            continue
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)  # a server of grpcio that is made between two awaits looks for one
        test.globs["_prompt_"] = _Prompt(loop)
        test.globs.setdefault("RateLimiter", RateLimiter)  # the base of both limiters has their examples
        runner.run(test)
        asyncio.set_event_loop(None)
        loop.close()
    return runner.summarize(verbose=False)

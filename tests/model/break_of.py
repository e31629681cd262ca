"""A rule broken on purpose.

A break is a place in the library, and what stands there instead. The function is compiled anew with that and lends its
code, so that whoever calls it calls the broken one.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, NamedTuple


class Break(NamedTuple):
    """`rule` is what does not hold any more; `shape` is where that is found."""

    rule: str
    where: str
    """Module within batchlimit, and qualified name of a function."""
    old: str
    new: str
    shape: str

    @contextmanager
    def made(self) -> Iterator[None]:
        """Break the rule."""
        module = importlib.import_module(f"batchlimit.{self.where.split(':')[0]}")
        function = function_of(module, self.where.split(":")[1])
        lines, first = inspect.getsourcelines(function)
        source, part = inspect.getsource(module), "".join(lines)
        if part.count(self.old) != 1:
            raise LookupError(f"{self.where} has {part.count(self.old)} times {self.old}")
        before = "".join(source.splitlines(keepends=True)[: first - 1])
        source = before + part.replace(self.old, self.new) + source.removeprefix(before + part)
        code = code_of(compile(source, module.__file__ or "", "exec"), self.where.split(":")[1])
        whole, function.__code__ = function.__code__, code
        try:
            yield
        finally:
            function.__code__ = whole


def breaks(table: str) -> dict[str, Break]:
    r"""Read breaks by their rules: `rule | shape | where`, and below that, indented, `old => new`; `\n` ends a line."""
    found = {}
    for head, *change in (each.splitlines() for each in re.split(r"\n(?! )", table.strip())):
        rule, shape, where = head.split(" | ")
        old, new = (each.strip().replace(r"\n", "\n") for each in " ".join(change).split("=>"))
        found[rule] = Break(rule, where, old, new, shape)
    return found


def function_of(module: Any, name: str) -> FunctionType:
    """Return the function of a qualified name: a method, or what stands behind a property or a class method."""
    *classes, last = name.split(".")
    owner = module
    for each in classes:
        owner = getattr(owner, each)
    found = inspect.getattr_static(owner, last)
    found = found.fget if isinstance(found, property) else found
    found = found.__func__ if isinstance(found, classmethod | staticmethod) else found
    assert isinstance(found, FunctionType)
    return found


def code_of(module: CodeType, name: str) -> CodeType:
    """Return the code of a function within that of its module."""
    code = module
    for part in name.split("."):
        code = next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == part)
    return code

"""Changed code, constants and defaults, put where the unchanged ones are that a test may hold already."""

import ast
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tests.mutate.changes import ROOT, Mutation

_OPTIMIZED = 1
"""The flag of code that is a function's, and not that of a class or a module."""
_Key = tuple[str, str, int]


class Patches:
    """The functions that are there now, by where they are written."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """`paths` are those of the modules that are changed: some are imported late, such as what reads YAML."""
        for path in paths:
            with suppress(ModuleNotFoundError):  # of an extra that is not here
                import_module(_named(path))
        gc.unfreeze()
        self._functions: dict[_Key, list[FunctionType]] = {}
        for each in gc.get_objects():
            if type(each) is FunctionType:  # to ask an object for its class may run its code: a lazy one sets itself up
                self._functions.setdefault(_key(each.__code__), []).append(each)
        gc.freeze()

    def of(self, mutation: Mutation) -> Callable[[], None] | None:
        """What makes a change; None: it is one of what an import runs, and no more is known of it."""
        path = ROOT / mutation.path
        replaced = _replaced(compile(path.read_text(), str(path), "exec"), mutation.code)
        if replaced is not None:
            return partial(self._replace, replaced)
        home = sys.modules[_named(mutation.path)]
        for node in ast.walk(mutation.module):
            match node:
                case ast.FunctionDef(lineno=mutation.lines.start):
                    return partial(self._set_defaults, node, str(path), home)
                case ast.Assign(targets=[ast.Name(id=name)]) if node in mutation.module.body:
                    if node.lineno == mutation.lines.start:
                        return partial(_set_constant, name, node, home)
        return None

    def _replace(self, replaced: dict[_Key, CodeType]) -> None:
        """Replace code wherever it is."""
        for key, code in replaced.items():
            for function in self._functions.get(key, []):
                function.__code__ = code

    def _set_defaults(self, node: ast.FunctionDef, path: str, home: ModuleType) -> None:
        """Give a function other defaults; those that its decorators made of it have their own."""
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        node.decorator_list = []
        made = _run(node, home)[node.name]
        for (file, _, line), functions in self._functions.items():
            for function in functions if (file, line) == (path, first) else ():
                function.__defaults__, function.__kwdefaults__ = made.__defaults__, made.__kwdefaults__


def _named(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _run(statement: ast.stmt, home: ModuleType) -> dict[str, Any]:
    """Run one statement of a module, and return all names that it has then; the module keeps its own."""
    names = dict(vars(home))
    exec(compile(ast.Module([statement], []), home.__name__, "exec"), names)
    return names


def _set_constant(name: str, statement: ast.Assign, home: ModuleType) -> None:
    """Have all see another constant who imported it; what was computed of it before stays as it is."""
    before, value = vars(home)[name], _run(statement, home)[name]
    for each in list(sys.modules.values()):
        is_shared = not name.startswith("_") or each.__name__.startswith("tests.")
        if each is home or (is_shared and vars(each).get(name) is before):
            setattr(each, name, value)


def _replaced(before: CodeType, after: CodeType) -> dict[_Key, CodeType] | None:
    """The functions of a code that differ, by where they are written; None: more differs than they."""
    is_function = bool(before.co_flags & _OPTIMIZED)
    inner = list(zip(_inner(before), _inner(after), strict=False))
    if not is_function and _outer(before) != _outer(after):
        return None
    found = {_key(before): after} if is_function and before != after else {}
    for pair in inner:
        if (more := _replaced(*pair)) is None:
            return found if is_function else None
        found |= more
    return found


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (each for each in code.co_consts if isinstance(each, CodeType))


def _outer(code: CodeType) -> tuple[bytes, list[object], int]:
    """What a module or class does by itself."""
    constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
    return code.co_code, [(type(each), each) for each in constants], len(list(_inner(code)))


def _key(code: CodeType) -> _Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno

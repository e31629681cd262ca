"""Changed code, put where the unchanged functions are that a test may hold already."""

import gc
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType

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
                import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
        gc.unfreeze()
        self._functions: dict[_Key, list[FunctionType]] = {}
        for each in gc.get_objects():
            if type(each) is FunctionType:  # to ask an object for its class may run its code: a lazy one sets itself up
                self._functions.setdefault(_key(each.__code__), []).append(each)
        gc.freeze()

    def of(self, mutation: Mutation) -> dict[_Key, CodeType] | None:
        """The code of functions that a change replaces; None: it is one of what an import runs."""
        path = ROOT / mutation.path
        return _replaced(compile(path.read_text(), str(path), "exec"), mutation.code)

    def make(self, replaced: dict[_Key, CodeType]) -> None:
        """Replace code wherever it is."""
        for key, code in replaced.items():
            for function in self._functions.get(key, []):
                function.__code__ = code


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

"""The sizes that keep the library readable: of its modules, and of its classes."""

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "batchlimit"
MOST_LINES = 300
USUAL_LINES = range(60, 151)
MOST_METHODS = 10
"""Properties are not counted. A class with more public methods says in its docstring how many, and why."""


def test_no_module_is_long_and_most_are_short() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in LIBRARY.rglob("*.py")}
    assert {path: length for path, length in lines.items() if length > MOST_LINES} == {}
    assert round(statistics.median(lines.values())) in USUAL_LINES


def test_a_class_with_many_public_methods_says_why() -> None:
    wrong = {
        f"{path.relative_to(LIBRARY)}: {each.name}": count
        for path in LIBRARY.rglob("*.py")
        for each in classes(path.read_text())
        if (count := len(public_methods(each))) != told(each) and (count > MOST_METHODS or told(each))
    }
    assert wrong == {}


def test_what_is_counted() -> None:
    (one,) = classes('''
class One:
    """It has 3 public methods, because three are asked for."""

    def __init__(self): ...
    def _hidden(self): ...
    @property
    def told(self): ...
    @told.setter
    def told(self, value): ...
    @classmethod
    def made(cls): ...
    @overload
    def call(self, one: int): ...
    def call(self, one): ...
    async def wait(self): ...
''')
    assert public_methods(one) == {"made", "call", "wait"}
    assert told(one) == 3


def classes(source: str) -> Iterator[ast.ClassDef]:
    return (each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.ClassDef))


def public_methods(one: ast.ClassDef) -> set[str]:
    functions = [each for each in one.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {each.name for each in functions if not each.name.startswith("_") and not is_property(each)}


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(re.search(r"property$|\.setter$", ast.unparse(each)) for each in function.decorator_list)


def told(one: ast.ClassDef) -> int:
    found = re.search(
        r"It has (\d+) public methods(?:: |, because )\w", " ".join((ast.get_docstring(one) or "").split())
    )
    return int(found[1]) if found else 0

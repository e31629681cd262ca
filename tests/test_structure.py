"""The sizes that keep the library readable: of the whole, of its tests, of its modules, and of its classes."""

import ast
import functools
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[1] / "batchlimit"
TESTS = Path(__file__).parent
MOST_LINES = 300
USUAL_LINES = range(60, 181)
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
MOST_METHODS = 10
"""Properties are not counted. A class with more public methods says in its docstring how many, and why."""

CEILINGS = {
    "lines": 46_581,
    "functions": 3_350,
    "files": 291,
    "classes of one name": 9,
    "entries of batchlimit/": 26,
    "lines of tests/": 80_016,
}
"""A number here only goes down, unless a commit says why it went up. `benchmarks/path.py` counts the ways of calls."""


@pytest.mark.parametrize("what", CEILINGS)
def test_neither_the_library_nor_its_tests_grow(what: str) -> None:
    count, told = sizes()[what]
    assert count <= CEILINGS[what], (
        f"{what}: {count}. Delete or merge something, or say in the commit why it is more. {told}"
    )


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


def test_a_name_that_two_classes_have_is_told_with_their_files() -> None:
    assert of_one_name({"a.py": "class A: ...", "b.py": "class A:\n class B: ..."}) == {"A": ["a.py", "b.py"]}


@functools.cache
def sizes() -> dict[str, tuple[int, str]]:
    """Return each count, and what to look at if it is too high."""
    sources = {str(path.relative_to(LIBRARY)): path.read_text() for path in sorted(LIBRARY.rglob("*.py"))}
    lines, functions = Counter[str](), Counter[str]()
    for name, source in sources.items():
        folder = name.rpartition("/")[0] or "batchlimit"
        lines[folder] += len(source.splitlines())
        functions[folder] += sum(isinstance(each, FUNCTIONS) for each in ast.walk(ast.parse(source)))
    twice = of_one_name(sources)
    entries = [path.name for path in sorted(LIBRARY.iterdir()) if path.name != "__pycache__"]
    return {
        "lines": (lines.total(), f"Most are in {lines.most_common(5)}"),
        "functions": (functions.total(), f"Most are in {functions.most_common(5)}"),
        "files": (len(sources), ""),
        "classes of one name": (len(twice), "\n".join(f"{name}: {', '.join(files)}" for name, files in twice.items())),
        "entries of batchlimit/": (len(entries), ", ".join(entries)),
        "lines of tests/": lines_of(TESTS),
    }


def lines_of(root: Path) -> tuple[int, str]:
    found = Counter[str]()
    for path in root.rglob("*.py"):
        found[path.relative_to(root).parts[0]] += len(path.read_text().splitlines())
    return found.total(), f"A test goes that no change of tests/mutate needs. Most are in {found.most_common(5)}"


def of_one_name(sources: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file, source in sources.items():
        for each in classes(source):
            found.setdefault(each.name, []).append(file)
    return {name: files for name, files in sorted(found.items()) if len(files) > 1}


def classes(source: str) -> Iterator[ast.ClassDef]:
    return (each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.ClassDef))


def public_methods(one: ast.ClassDef) -> set[str]:
    functions = [each for each in one.body if isinstance(each, FUNCTIONS)]
    return {each.name for each in functions if not each.name.startswith("_") and not is_property(each)}


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(re.search(r"property$|\.setter$", ast.unparse(each)) for each in function.decorator_list)


def told(one: ast.ClassDef) -> int:
    found = re.search(
        r"It has (\d+) public methods(?:: |, because )\w", " ".join((ast.get_docstring(one) or "").split())
    )
    return int(found[1]) if found else 0

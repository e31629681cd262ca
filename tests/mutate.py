"""Change the library in small ways, one at a time, and see whether its tests notice.

    python -m tests.mutate --part bucket --count 50

A change is of a comparison, a sum, an `and` or `or`, a constant, a `not`, a statement that is left out, or a return
that comes at once. Each is made in a copy of the checkout, where the tests of the part run until one fails. What none
of them notices survives, and is printed. `--count` takes so many of all changes, drawn by `--seed`: the same ones each
time. tests/equivalents.txt lists changes that change nothing, with an argument; they do not count.
"""

import argparse
import ast
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
EQUIVALENTS = ROOT / "tests" / "equivalents.txt"
_MODEL = "tests/model/test_model.py::test_no_history_breaks_a_rule"
_ENFORCED = ("plan", "underway", "enforcement", "routes", "replacing", "exempt", "decisions", "asgi", "rule_file")
_APIS = [f"tests/apis/test_{each}.py" for each in ("spends", "several", "pauses", "close", "overrides", "parity")]
PARTS = {
    "bucket": ["tests/bucket", "tests/lua", "tests/shared/test_simulation.py", "tests/simulation", _MODEL],
    "reservoir": ["tests/reservoir", "tests/keyspace", "tests/simulation", "tests/apis/test_spends.py", _MODEL],
    "keyspace": ["tests/keyspace", *_APIS, "tests/life/test_dormant_keys.py", _MODEL],
    "bucket/slot_table.py": ["tests/bucket", "tests/lua", "tests/shared", "tests/stores/test_slots.py"],
    "shared": ["tests/shared", "tests/stores/test_slots.py"],
    "quota/overrides": ["tests/quota/overrides", "tests/reservoir/test_overrides.py", "tests/apis/test_overrides.py"],
    "integrations/enforcement": [f"tests/integrations/test_{each}.py" for each in _ENFORCED],
}
"""By folder or module of the library: where the tests of its rules are, those first that take least."""
_COPIED = ("batchlimit", "lua", "tests", "examples", "pyproject.toml", "README.md")
_TIMEOUT = 300
"""Seconds. A test that runs for longer has noticed."""
_OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


class Mutation(NamedTuple):
    """One change: where, of what to what, and the whole module with it."""

    path: Path
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before} -> {self.after}"

    @property
    def name(self) -> str:
        """By which tests/equivalents.txt knows it: without the line, which moves."""
        return f"{self.path}: {self.before} -> {self.after}"


class Site(NamedTuple):
    """A node of a module, by its place in `ast.walk`, and which of its changes is meant."""

    path: Path
    node: int
    change: int

    def mutation(self) -> Mutation | None:
        """Make the change; None: it reads as before, or does nothing."""
        whole = ast.parse((ROOT / self.path).read_text())
        node = next(islice(ast.walk(whole), self.node, None))
        statement = _statement(whole, node)
        if isinstance(statement, ast.ClassDef):
            return None  # slots save memory, and what is frozen nobody writes to
        before = _shown(statement)
        _change(node, self.change)
        if (after := _shown(statement)) == before:
            return None
        line = getattr(node, "lineno", 0)
        return Mutation(self.path, line, before, after, ast.unparse(ast.fix_missing_locations(whole)))


def sites(path: Path) -> Iterator[Site]:
    """Where a module can be changed."""
    for number, node in enumerate(ast.walk(ast.parse((ROOT / path).read_text()))):
        yield from (Site(path, number, change) for change in range(_changes(node)))


def _changes(node: ast.AST) -> int:
    """In how many ways a node can be changed."""
    match node:
        case ast.Compare() if len(node.ops) == 1:
            return 1
        case ast.BinOp() | ast.AugAssign() if type(node.op) in _OPPOSITE:
            return 1
        case ast.BoolOp():
            return 1
        case ast.UnaryOp(op=ast.Not()):
            return 1
        case ast.Constant(value=bool()):
            return 1
        case ast.Constant(value=int() | float()):
            return 2
        case ast.FunctionDef():
            return sum(map(_is_dropped, node.body)) + (len(node.body) > _first(node) + 1)
        case ast.If():
            return sum(map(_is_dropped, node.body))
        case _:
            return 0
    return 0


def _change(node: ast.AST, number: int) -> None:
    match node:
        case ast.Compare():
            node.ops = [_OPPOSITE[type(node.ops[0])]()]  # type: ignore[list-item]
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp():
            node.op = _OPPOSITE[type(node.op)]()  # type: ignore[assignment]
        case ast.UnaryOp():
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant():
            node.value += (1, -1)[number]  # type: ignore[operator]
        case ast.FunctionDef() | ast.If():
            dropped = [at for at, each in enumerate(node.body) if _is_dropped(each)]
            if number < len(dropped):
                node.body[dropped[number]] = ast.Pass()
            else:
                node.body.insert(_first(node), ast.Return(None))
        case _:
            raise TypeError(f"there is no change of {node}")


def _is_dropped(statement: ast.stmt) -> bool:
    """Whether a statement can be left out: what it does is not needed for a name to be there."""
    return (
        isinstance(statement, ast.AugAssign)
        or (isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant))
        or (isinstance(statement, ast.Assign) and all(isinstance(each, ast.Attribute) for each in statement.targets))
    )


def _first(node: ast.FunctionDef | ast.If) -> int:
    """Where the statements begin, after the docstring."""
    return int(isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None)


def _statement(whole: ast.Module, node: ast.AST) -> ast.stmt:
    """The innermost statement that a node is part of."""
    around: dict[ast.AST, ast.AST] = {part: each for each in ast.walk(whole) for part in ast.iter_child_nodes(each)}
    while not isinstance(node, ast.stmt):
        node = around[node]
    return node


def _shown(node: ast.stmt) -> str:
    """A statement in one line; of a function its head, and what is done."""
    if isinstance(node, ast.FunctionDef):
        head = f"def {node.name}({ast.unparse(node.args)}): "
        return head + "; ".join(ast.unparse(each).split("\n")[0] for each in node.body[_first(node) :])
    return " ".join(ast.unparse(node).split())


class Copy:
    """A copy of the checkout in which one change after the other is made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / name)

    def is_whole(self, paths: list[Path], tests: list[str]) -> bool:
        """Whether all tests pass where the modules are written as a changed one is, without any change."""
        for path in paths:
            (self._folder / path).write_text(ast.unparse(ast.parse((ROOT / path).read_text())))
        try:
            return self._pass(tests)
        finally:
            for path in paths:
                shutil.copy(ROOT / path, self._folder / path)

    def survives(self, mutation: Mutation, tests: list[str]) -> bool:
        """Whether all tests pass with this change."""
        (self._folder / mutation.path).write_text(mutation.source)
        try:
            return self._pass(tests)
        finally:
            shutil.copy(ROOT / mutation.path, self._folder / mutation.path)

    def _pass(self, tests: list[str]) -> bool:
        words = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        try:
            done = subprocess.run(words, cwd=self._folder, env=environment, timeout=_TIMEOUT, check=False, **quiet)  # type: ignore[call-overload]
        except subprocess.TimeoutExpired:
            return False
        return bool(done.returncode == 0)


def equivalents() -> set[str]:
    """The names of changes that change nothing; each is followed by ` # ` and why."""
    lines = EQUIVALENTS.read_text().splitlines()
    return {line.split(" # ")[0] for line in lines if line and not line.startswith("#")}


def main() -> int:
    """Make the changes that were asked for; exit status 1 if one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--part", choices=PARTS, required=True, help="a folder of batchlimit/, or a module")
    parser.add_argument("--count", type=int, help="changes to make (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (default: 0)")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="copies at a time")
    parser.add_argument("tests", nargs="*", help="tests to run (default: those of the part)")
    chosen = parser.parse_args()
    known, tests = equivalents(), chosen.tests or PARTS[chosen.part]
    place = ROOT / "batchlimit" / chosen.part
    paths = sorted(path.relative_to(ROOT) for path in (place.rglob("*.py") if place.is_dir() else [place]))
    places = [each for path in paths for each in sites(path)]
    if chosen.count is not None:
        places = random.Random(chosen.seed).sample(places, min(chosen.count, len(places)))
    made = [each.mutation() for each in places]
    drawn = [each for each in made if each is not None and each.name not in known]
    with tempfile.TemporaryDirectory() as folder, ThreadPool(chosen.jobs) as pool:
        free = [Copy(Path(folder) / str(number)) for number in range(chosen.jobs)]
        if not free[0].is_whole(paths, tests):
            print("the tests fail without any change")
            return 2

        def judge(mutation: Mutation) -> tuple[Mutation, bool]:
            one = free.pop()
            try:
                return mutation, one.survives(mutation, tests)
            finally:
                free.append(one)

        survivors = []
        for number, (mutation, survives) in enumerate(pool.imap_unordered(judge, drawn), 1):
            survivors += [mutation] if survives else []
            print(f"{number}/{len(drawn)} {'SURVIVES' if survives else 'noticed '} {mutation}", flush=True)
    found = len(drawn) - len(survivors)
    print(f"{chosen.part}: {found} of {len(drawn)} were noticed, {found / max(1, len(drawn)):.1%}; survivors:")
    print("\n".join(map(str, sorted(survivors))))
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())

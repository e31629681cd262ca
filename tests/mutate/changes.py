"""The small changes of a module: what each changes, and to which code."""

import ast
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


class Mutation(NamedTuple):
    """One change: where, of what to what, the lines of the changed statement, and the whole module with it."""

    path: Path
    line: int
    before: str
    after: str
    lines: range
    module: ast.Module

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before} -> {self.after}"

    @property
    def name(self) -> str:
        """By which equivalents.txt knows it: without the line, which moves."""
        return f"{self.path}: {self.before} -> {self.after}"

    @property
    def code(self) -> CodeType:
        """The changed module, where each line has its number of before."""
        return compile(self.module, str(ROOT / self.path), "exec")


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
        lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        return Mutation(self.path, getattr(node, "lineno", 0), before, after, lines, ast.fix_missing_locations(whole))


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

"""Constants: what names of a module stand for, as far as its source says so."""

import ast
from copy import deepcopy


class Constants(ast.NodeTransformer):
    """Puts constants of a module in the place of their names, unless anything sets a name twice, and joins texts."""

    def __init__(self, tree: ast.Module) -> None:
        names = [
            each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
        ]
        names += [each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)]
        self._values = dict[str, ast.expr]()
        for each in tree.body:
            target = each.targets[0] if isinstance(each, ast.Assign) else getattr(each, "target", None)
            value: ast.expr | None = getattr(each, "value", None)
            if (
                isinstance(target, ast.Name)
                and names.count(target.id) == 1
                and value is not None
                and _is_constant(value)
            ):
                self._values[target.id] = value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Put the constant of a name in its place."""
        value = self._values.get(node.id) if isinstance(node.ctx, ast.Load) else None
        return node if value is None else ast.copy_location(deepcopy(value), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Join two texts."""
        self.generic_visit(node)
        parts = [each.value for each in (node.left, node.right) if isinstance(each, ast.Constant)]
        is_text = isinstance(node.op, ast.Add) and len(parts) == 2 and all(isinstance(each, str) for each in parts)
        return ast.copy_location(ast.Constant("".join(map(str, parts))), node) if is_text else node


def _is_constant(value: ast.expr) -> bool:
    return all(isinstance(each, ast.Constant) for each in listed(value))


def listed(given: ast.expr | None) -> list[ast.expr]:
    """Return what a list or a tuple has, or what is none of them."""
    return given.elts if isinstance(given, ast.List | ast.Tuple) else [] if given is None else [given]

"""Constants, and limits in variables: what names of a module stand for, as far as its source says so."""

import ast
from copy import deepcopy


class Constants(ast.NodeTransformer):
    """Puts constants of a module in the place of their names, unless anything sets a name twice, and joins texts.

    So it does with limits that are kept in a variable: what makes such a limit stands where it is used, and only there.
    """

    def __init__(self, tree: ast.Module) -> None:
        found = [each for each in ast.walk(tree) if isinstance(each, ast.Name)]
        names = [each.id for each in found if not isinstance(each.ctx, ast.Load)]
        names += [each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)]
        used = {each.id for each in found if isinstance(each.ctx, ast.Load)}
        self._values = dict[str, ast.expr]()
        self.limits = dict[str, ast.stmt]()
        """What makes each limit, by the name of the limit."""
        for each in tree.body:
            target = each.targets[0] if isinstance(each, ast.Assign) else getattr(each, "target", None)
            value: ast.expr | None = getattr(each, "value", None)
            if not isinstance(target, ast.Name) or names.count(target.id) != 1 or value is None:
                continue
            if _is_constant(value):
                self._values[target.id] = value
            elif _is_limit(value) and target.id in used and len(getattr(each, "targets", [target])) == 1:
                self._values[target.id], self.limits[target.id] = value, each

    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Leave out what makes limits, when they stand where they are used."""
        self.generic_visit(node)
        node.body = [each for each in node.body if each not in self.limits.values()]
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Put what a name stands for in its place."""
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


def _is_limit(value: ast.expr) -> bool:
    function = value.func if isinstance(value, ast.Call) else None
    return isinstance(function, ast.Attribute) and function.attr in ("limit", "shared_limit")


def listed(given: ast.expr | None) -> list[ast.expr]:
    """Return what a list or a tuple has, or what is none of them."""
    return given.elts if isinstance(given, ast.List | ast.Tuple) else [] if given is None else [given]

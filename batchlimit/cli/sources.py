"""What names in sources stand for: constants, limits in variables, and routers with the prefixes above them."""

import ast
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

from batchlimit.cli.routes import Prefixes, given_to, last, listed, made_routers

Words = tuple[str, ...]
LIMITS = "limit", "shared_limit"
_INCLUDES = {"include_router": "prefix", "register_blueprint": "url_prefix"}


class Constants(ast.NodeTransformer):
    """Puts constants, and limits in a variable, in the place of their names, unless one is set twice; joins texts."""

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
            made = last(value.func) if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else ""
            if all(isinstance(part, ast.Constant) for part in listed(value)):
                self._values[target.id] = value
            elif made in LIMITS and target.id in used and len(getattr(each, "targets", [target])) == 1:
                self._values[target.id], self.limits[target.id] = value, each

    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Leave out what makes limits, when they stand where they are used."""
        self.generic_visit(node)
        node.body = [each for each in node.body if each not in self.limits.values()]
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._values.get(node.id) if isinstance(node.ctx, ast.Load) else None
        return node if value is None else ast.copy_location(deepcopy(value), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        parts = [each.value for each in (node.left, node.right) if isinstance(each, ast.Constant)]
        is_text = isinstance(node.op, ast.Add) and len(parts) == 2 and all(isinstance(each, str) for each in parts)
        return ast.copy_location(ast.Constant("".join(map(str, parts))), node) if is_text else node


class Router(NamedTuple):
    """A router, by the file that makes it and its name there."""

    path: Path
    name: str


class _Included(NamedTuple):
    owner: Router
    prefix: str | None
    replaces: bool  # the prefix of the blueprint itself


class Inclusions:
    """Says below which prefixes each router of some files is included."""

    def __init__(self, trees: Mapping[Path, ast.Module]) -> None:
        self._trees = {path.resolve(): tree for path, tree in trees.items()}
        self._own = dict[Router, str | None]()
        self._imports = {path: dict(_imported(path, tree)) for path, tree in self._trees.items()}
        self._found = dict[Router, list[_Included]]()
        for path, tree in self._trees.items():
            for name, prefix in made_routers(ast.walk(tree)):
                router = Router(path, name)
                self._own[router] = None if router in self._own else prefix
        for path, tree in self._trees.items():
            for node in ast.walk(tree):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                    continue
                if (word := _INCLUDES.get(node.func.attr)) is not None:
                    given = given_to(node).get(word)
                    text = "" if given is None else given.value if isinstance(given, ast.Constant) else None
                    replaces = word == "url_prefix" and given is not None
                    within = self._router(path, node.func.value), text if isinstance(text, str) else None, replaces
                    self._found.setdefault(self._router(path, node.args[0]), []).append(_Included(*within))

    def seen(self, path: Path, owner: ast.expr, known: Prefixes) -> tuple[str | None, list[str] | None]:
        """Return the prefix of what a file names so, and its whole prefixes (None: as far as they are not seen).

        `known` are the routers that are made where the name stands.
        """
        if isinstance(owner, ast.Name) and owner.id in known:
            return known[owner.id], self.prefixes(path, owner.id)
        router = self._router(path.resolve(), owner)
        if router not in self._own:  # an application, if its file is here
            return "", [""] if router.name else None
        return self._own[router], self.prefixes(*router)

    def prefixes(self, path: Path, name: str, within: tuple[Router, ...] = ()) -> list[str] | None:
        """Return the whole prefixes of a router, which a file makes by a name; None: not all of them are seen."""
        router = Router(path.resolve(), name)
        own, included = self._own.get(router), self._found.get(router)
        if own is None or not included or router in within:
            return None
        found = list[str]()
        for each in included:
            outer = self.prefixes(*each.owner, (*within, router)) if each.owner in self._own else [""]
            if outer is None or each.prefix is None:
                return None
            found += [above + each.prefix + ("" if each.replaces else own) for above in outer]
        return found

    def _router(self, path: Path, node: ast.expr, steps: int = 5) -> Router:
        """Return what an expression names: where that is made, if it is imported; of no name: nobody sees where."""
        name, *attributes = ast.unparse(node).split(".") if isinstance(node, ast.Name | ast.Attribute) else ("",)
        router, imported = Router(path, "" if attributes else name), self._imports[path].get(name)
        if router in self._own or imported is None or not steps or len(attributes) > 1:
            return router
        *module, name = *imported, *attributes
        words = {path: (path.parent if path.stem == "__init__" else path.with_suffix("")).parts for path in self._trees}
        files = [path for path, whole in words.items() if whole[-len(module) :] == tuple(module)]
        return self._router(files[0], ast.Name(name), steps - 1) if len(files) == 1 else Router(Path(), "")


def _imported(path: Path, tree: ast.Module) -> Iterator[tuple[str, Words]]:
    """Yield each name that is imported, with its whole name; a relative one begins where the file stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            folders = path.parts[: len(path.parts) - node.level] if node.level else ()
            module = (*folders, *(node.module.split(".") if node.module else ()))
            yield from ((each.asname or each.name, (*module, each.name)) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.asname or each.name, tuple(each.name.split("."))) for each in node.names)

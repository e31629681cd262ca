"""Where routers are included: the prefixes of their paths, as far as the sources say them."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from batchlimit.cli.routes import router_prefix

Words = tuple[str, ...]
_INCLUDES = {"include_router": "prefix", "register_blueprint": "url_prefix"}


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
            for name, prefix in _made(tree):
                router = Router(path, name)
                self._own[router] = None if router in self._own else prefix
        for path, tree in self._trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    self._include(path, node, node.func)

    def prefixes(self, path: Path, name: str) -> list[str] | None:
        """Return the whole prefixes of a router, which a file makes by a name; None: not all of them are seen."""
        return self._prefixes(Router(path.resolve(), name), ())

    def _prefixes(self, router: Router, within: tuple[Router, ...]) -> list[str] | None:
        own, included = self._own.get(router), self._found.get(router)
        if own is None or not included or router in within:
            return None
        found = list[str]()
        for each in included:
            outer = self._prefixes(each.owner, (*within, router)) if each.owner in self._own else [""]
            if outer is None or each.prefix is None:
                return None
            found += [above + each.prefix + ("" if each.replaces else own) for above in outer]
        return found

    def _include(self, path: Path, call: ast.Call, function: ast.Attribute) -> None:
        if (word := _INCLUDES.get(function.attr)) is None or not call.args:
            return
        router, owner = self._router(path, call.args[0]), self._router(path, function.value)
        prefix = next((each.value for each in call.keywords if each.arg == word), None)
        literal = "" if prefix is None else prefix.value if isinstance(prefix, ast.Constant) else None
        text = literal if isinstance(literal, str) else None
        replaces = word == "url_prefix" and prefix is not None
        self._found.setdefault(router, []).append(_Included(owner, text, replaces))

    def _router(self, path: Path, node: ast.expr) -> Router:
        """Return what an expression names: where that is made, if it is imported."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = self._imports[path].get(node.value.id)
            return self._made_in(module, node.attr) if module else Router(path, "")
        return self._origin(Router(path, node.id if isinstance(node, ast.Name) else ""))

    def _origin(self, router: Router, steps: int = 5) -> Router:
        """Follow the imports of a name to the file that makes it."""
        imported = self._imports[router.path].get(router.name)
        if router in self._own or imported is None or not steps:
            return router
        return self._made_in(imported[:-1], imported[-1], steps - 1)

    def _made_in(self, module: Words, name: str, steps: int = 5) -> Router:
        files = [path for path in self._trees if _words(path)[-len(module) :] == module]
        return self._origin(Router(files[0], name), steps) if len(files) == 1 else Router(Path(), "")


def _words(path: Path) -> Words:
    """Return the names of a module, the outer ones first."""
    return (path.parent if path.name == "__init__.py" else path.with_suffix("")).parts


def _made(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call):
            prefix = router_prefix(node.value)
            if prefix is not None:
                yield node.targets[0].id, prefix


def _imported(path: Path, tree: ast.Module) -> Iterator[tuple[str, Words]]:
    """Yield each name that is imported, with its whole name; a relative one begins where the file stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            folders = path.parts[: len(path.parts) - node.level] if node.level else ()
            module = (*folders, *(node.module.split(".") if node.module else ()))
            yield from ((each.asname or each.name, (*module, each.name)) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.asname or each.name, tuple(each.name.split("."))) for each in node.names)

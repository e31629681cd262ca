"""The command that reads the limits of slowapi and flask-limiter in a program, and prints them as rules.

It runs nothing and guesses nothing: what the source does not say as a constant is told, with its place.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from batchlimit.cli.constants import Constants, listed
from batchlimit.cli.output import say
from batchlimit.cli.store import NOTHING_DONE
from batchlimit.quota.quota import Quota
from batchlimit.rules import Rules, RulesError

_METHODS = ("get", "post", "put", "patch", "delete", "head", "options")
_HINTS = {
    "deduct_when": "write charge = [statuses]",
    "error_message": "answer by on_rejected",
    "exempt_when": "add a function to exempt",
    "key_func": "let identify tell the value, and write it into the key",
    "meta_limits": "put a second middleware around the first",
    "on_breach": "answer by on_rejected",
    "per_method": "write a rule for each method",
    "strategy": "a bucket holds; write '5 within 1h' for a strict window",
    "swallow_errors": 'write on_failure = "open"',
    "in_memory_fallback": 'write on_failure = {kind = "local", instances = 4}',
    "headers_enabled": 'fields are always written; headers="legacy" has the old names',
    "enabled": "pass enabled= to the middleware",
}
_QUIET = ("app", "storage_uri", "override_defaults", "methods", "cost", "scope", "limit_value", "default_limits")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class _Rule:
    """A rule to print."""

    name: str
    quotas: list[str]
    match: list[str] = field(default_factory=list)
    cost: int = 1
    replaces: bool = True
    key: str = ""  # that of another rule, with another cost


@dataclass
class _Found:
    """What was read so far."""

    rules: dict[str, _Rule] = field(default_factory=dict)
    defaults: list[str] = field(default_factory=list)
    together: list[str] = field(default_factory=list)
    exempt: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    value: str = "ip"


def migrate(paths: Annotated[list[Path], typer.Argument(help="Files and folders of Python.")]) -> None:
    """Print limits of slowapi and flask-limiter as a file of rules. What cannot be read is told: status 1."""
    found = _Found()
    for path in sorted({file for each in paths for file in (each.rglob("*.py") if each.is_dir() else [each])}):
        try:
            _SourceFile(path, ast.parse(path.read_bytes(), str(path)), found).read()
        except (OSError, SyntaxError, ValueError) as error:
            found.problems.append(f"{path}: it cannot be read: {error}")
    text = "\n".join(_toml(found))
    print(text)
    try:
        Rules.loads(text, format="toml", source="<rules>")
    except RulesError as error:
        found.problems.append(str(error))
    for problem in found.problems:
        say(problem)
    if found.problems:
        raise typer.Exit(NOTHING_DONE)


class _SourceFile:
    """Reads one file.

    Args:
        path: its path.
        tree: what it says.
        found: takes what is found.
    """

    def __init__(self, path: Path, tree: ast.Module, found: _Found) -> None:
        self._path, self._tree, self._found = path, Constants(tree).visit(tree), found
        self._prefixes: dict[str, str] = {}
        self._by_url = set[str]()  # patterns that slowapi counts by URL
        self._read: set[ast.AST] = set()

    def read(self) -> None:
        """Take the limiter, and then the functions with a limit."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and _last(node.func) == "Limiter":
                self._limiter(node)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                self._router(node.targets[0], node.value)
        for node in ast.walk(self._tree):
            if isinstance(node, _Function):
                self._function(node)
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and node not in self._read:
                self._elsewhere(node)

    def _elsewhere(self, call: ast.Call) -> None:
        """Tell of a limit that decorates no function here, and of what puts routes below a prefix."""
        name = _last(call.func)
        if name in ("limit", "shared_limit", "exempt") and isinstance(call.func, ast.Attribute):
            self._tell(call, f"{name} is applied in a way that is not read: write its rule by hand")
        elif name == "mount" and isinstance(call.func, ast.Attribute):
            self._tell(call, "paths of a mounted application are below a prefix, which is not seen: check their match")

    def _limiter(self, call: ast.Call) -> None:
        self._hint(call)
        given = {each.arg: each.value for each in call.keywords}
        key = given.get("key_func") or (call.args[0] if call.args else None)
        if key is not None and _last(key) not in ("get_remote_address", "get_ipaddr"):
            self._found.value = "user"
            self._tell(key, 'keys have {user}: let identify return {"user": ...} as this key_func does')
        self._found.defaults += self._quotas(given.get("default_limits"))
        self._found.together += self._quotas(given.get("application_limits"))

    def _router(self, target: ast.expr, call: ast.Call) -> None:
        if isinstance(target, ast.Name) and _last(call.func) in ("APIRouter", "Blueprint"):
            prefix = {each.arg: each.value for each in call.keywords}
            given = prefix.get("prefix") or prefix.get("url_prefix")
            self._prefixes[target.id] = str(given.value) if isinstance(given, ast.Constant) else ""

    def _function(self, function: _Function) -> None:
        limits = [each for each in function.decorator_list if _last(_called(each)) in ("limit", "shared_limit")]
        self._read.update(function.decorator_list)
        for each in limits:
            if not isinstance(each, ast.Call):
                self._tell(function, f"{function.name} has a limit that was made elsewhere: write its rule by hand")
        limits = [each for each in limits if isinstance(each, ast.Call)]
        is_exempt = any(_last(_called(each)) == "exempt" for each in function.decorator_list)
        if not limits and not is_exempt:
            return
        patterns = [pattern for each in function.decorator_list for pattern in self._patterns(each)]
        if not patterns:
            self._tell(
                function, f"{function.name} has a limit, and no route that is written here: add its path as match"
            )
        elif is_exempt:
            self._found.exempt += patterns
        read = [self._limit(function, call, patterns) for call in limits if isinstance(call, ast.Call) and patterns]
        if not all(read):
            self._in_part(function, patterns)

    def _limit(self, function: _Function, call: ast.Call, patterns: list[str]) -> bool:
        """Take one limit of a function; return whether all of it was read."""
        self._hint(call)
        given = {each.arg: each.value for each in call.keywords}
        asked = call.args[0] if call.args else given.get("limit_value")
        quotas = self._quotas(asked)
        cost, override = given.get("cost"), given.get("override_defaults")
        rule = self._rule(function, call, patterns, _number(cost))
        rule.quotas += [quota for quota in quotas if quota not in rule.quotas]
        rule.match += [pattern for pattern in patterns if pattern not in rule.match]
        if isinstance(methods := given.get("methods"), ast.List | ast.Tuple) and patterns:
            names = ",".join(str(each.value).upper() for each in methods.elts if isinstance(each, ast.Constant))
            rule.match = [f"{names} {pattern.split()[-1]}" for pattern in patterns]
        if cost is not None and not isinstance(cost, ast.Constant):
            self._tell(cost, "its cost is a function: name it as cost, and pass functions={...}")
        if isinstance(override, ast.Constant):
            rule.replaces = bool(override.value)
        return len(quotas) == len(listed(asked)) and (override is None or isinstance(override, ast.Constant))

    def _rule(self, function: _Function, call: ast.Call, patterns: list[str], cost: int) -> _Rule:
        """Return the rule of a limit. Where others share it with another cost, it is one more rule of the same key."""
        scope = next((each.value for each in call.keywords if each.arg == "scope"), None)
        is_shared = _last(call.func) == "shared_limit" and isinstance(scope, ast.Constant)
        name = key = str(scope.value) if is_shared and isinstance(scope, ast.Constant) else function.name
        before = self._found.rules.get(name)
        if is_shared and before is not None and before.cost != cost:
            name = f"{name}-{cost}"
        elif not is_shared and before is not None and before.match != patterns:
            name = key = f"{self._path.stem}.{name}"
        if not is_shared:
            self._tell_of_urls(call, function.name, patterns)
        return self._found.rules.setdefault(name, _Rule(name, [], cost=cost, key=key))

    def _tell_of_urls(self, call: ast.Call, name: str, patterns: list[str]) -> None:
        """Tell of a bucket that all URLs of a path with parameters share."""
        fields = {each for pattern in self._by_url.intersection(patterns) for each in re.findall(r"\{\w+\}", pattern)}
        if fields:
            what = (
                f"slowapi counts each URL by itself, this rule all of them together: write {', '.join(sorted(fields))}"
            )
            self._tell(call, f"{name}: {what} into its key for that")

    def _in_part(self, function: _Function, patterns: list[str]) -> None:
        """Leave the default limits in force for a function of whose limits some were not read."""
        rules = [rule for rule in self._found.rules.values() if rule.quotas and rule.match == patterns]
        for rule in rules:
            rule.replaces = False
        if rules:
            self._tell(function, f"{function.name} is read in part, so its rule does not replace the default limits")

    def _patterns(self, decorator: ast.expr) -> Iterator[str]:
        """Return the patterns of a decorator, if it is one of a route."""
        if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, ast.Attribute):
            return
        kind, owner = decorator.func.attr, decorator.func.value
        given = {each.arg: each.value for each in decorator.keywords}
        path = decorator.args[0] if decorator.args else given.get("path")
        if kind not in (*_METHODS, "route", "api_route"):
            return
        if not isinstance(path, ast.Constant):
            self._tell(decorator, "this path is no text that stands here: add it to match")
            return
        methods = [kind.upper()] if kind in _METHODS else ["GET"]
        if isinstance(listed := given.get("methods"), ast.List | ast.Tuple):
            methods = [str(each.value).upper() for each in listed.elts if isinstance(each, ast.Constant)]
        router = owner.id if isinstance(owner, ast.Name) else ""
        if router in self._prefixes:
            self._tell(decorator, f"{router} may be included below a prefix, which is not seen: check its match")
        pattern = f"{','.join(methods)} {_pattern(self._prefixes.get(router, '') + str(path.value))}"
        if "{" in str(path.value):
            self._by_url.add(pattern)
        yield pattern

    def _quotas(self, given: ast.expr | None) -> list[str]:
        found = []
        for each in listed(given):
            text = each.value if isinstance(each, ast.Constant) else None
            try:
                found.append(str(Quota.parse(re.sub(r"\s*[,|;]\s*", "; ", text)))) if isinstance(text, str) else None
            except ValueError as error:
                self._tell(each, str(error))
            if not isinstance(text, str):
                self._tell(each, "this limit is no text that stands here: limits by plan, or an override, may do it")
        return found

    def _hint(self, call: ast.Call) -> None:
        for each in call.keywords:
            if each.arg in _HINTS and not (each.arg == "key_func" and _last(call.func) == "Limiter"):
                self._tell(each.value, f"{each.arg}: {_HINTS[each.arg]}")
            elif each.arg not in (*_HINTS, *_QUIET, "application_limits"):
                self._tell(each.value, f"{each.arg} is not moved")

    def _tell(self, node: ast.expr | _Function, problem: str) -> None:
        self._found.problems.append(f"{self._path}:{node.lineno}: {problem}")


def _number(cost: ast.expr | None) -> int:
    return cost.value if isinstance(cost, ast.Constant) and isinstance(cost.value, int) else 1


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _last(name: ast.expr) -> str:
    return name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""


def _pattern(path: str) -> str:
    """Return a path of Flask or Starlette as rules write it."""
    path = re.sub(r"<path:\w+>$|\{\w+:path\}$", "*", path)
    return re.sub(
        r"<(?:\w+(?:\([^)]*\))?:)?(\w+)>|\{(\w+)(?::\w+)?\}", lambda found: f"{{{found[1] or found[2]}}}", path
    )


def _toml(found: _Found) -> Iterator[str]:
    if found.exempt:
        yield f"exempt = {json.dumps(found.exempt)}\n"
    whole = [("application", found.together), ("default", found.defaults)]
    rules = [_Rule(name, quotas, ["*"], replaces=False) for name, quotas in whole if quotas]
    if found.defaults:
        yield "# There, the default limits were for each route by itself; here they are for all such routes together."
    for rule in [*rules, *found.rules.values()]:
        if not rule.quotas:
            continue
        yield f"[[rules]]\nname = {json.dumps(rule.name)}\nquota = {json.dumps('; '.join(rule.quotas))}"
        yield f"key = {json.dumps(f'{rule.key or rule.name}:{{{found.value}}}')}\nmatch = {json.dumps(rule.match)}"
        yield from [f"cost = {rule.cost}"] if rule.cost != 1 else []
        yield from ['replaces = "default"'] if rule.replaces and found.defaults else []
        yield ""

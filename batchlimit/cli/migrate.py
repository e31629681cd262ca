"""The command that reads the limits of slowapi and flask-limiter in a program, and prints them as rules.

It runs nothing and guesses nothing. It reports the place of all that the source does not say as a constant.
"""

import ast
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from batchlimit.cli.output import NOTHING_DONE, say
from batchlimit.cli.routes import (
    Found,
    Function,
    MigratedLimiter,
    MigratedRule,
    Prefixes,
    SourceRoute,
    Written,
    given_to,
    last,
    listed,
    methods_of,
    named_calls,
    overlaps,
    prefixes_by_function,
    written,
)
from batchlimit.cli.sources import LIMITS, Constants, Inclusions
from batchlimit.quota.quota import Quota
from batchlimit.rules import Rules, RulesError

_HINTS = {
    "deduct_when": "write charge = [statuses]",
    "error_message": "answer by on_rejected",
    "exempt_when": "let cost be a function that returns 0; exempt frees a request of all rules",
    "key_func": "the rule's key has a field of its own: let identify tell it",
    "meta_limits": "put a second middleware around the first",
    "on_breach": "answer by on_rejected",
    "per_method": "write a rule for each method",
    "strategy": "a bucket holds; write '5 within 1h' for a strict window",
    "swallow_errors": 'write on_failure = "open"',
    "in_memory_fallback": 'write on_failure = {kind = "local", instances = 4}',
    "headers_enabled": 'fields are always written; headers="legacy" has the old names',
    "enabled": "pass enabled= to the middleware",
}
_ADDRESSES = ("get_remote_address", "get_ipaddr")
_SETTING = re.compile(r"RATELIMIT_(DEFAULT|APPLICATION|META|GLOBAL)").fullmatch
_QUIET = ("app", "storage_uri", "override_defaults", "methods", "cost", "scope", "limit_value", "default_limits")


def migrate(paths: Annotated[list[Path], typer.Argument(help="Files and folders of Python.", exists=True)]) -> None:
    """Print limits of slowapi and flask-limiter as a file of rules. What cannot be read is told: status 1."""
    found, trees, limits, limiters = Found(), dict[Path, ast.Module](), set[str](), set[str]()
    for path in sorted({file for each in paths for file in _sources(each)}):
        try:
            tree = ast.parse(path.read_bytes(), str(path))
            constants = Constants(tree)
            trees[path] = constants.visit(tree)
            limits.update(constants.limits)
            limiters.update(last(name) for name, call in named_calls(ast.walk(tree)) if last(call.func) == "Limiter")
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            found.problems.append(f"{path}: it cannot be read: {error}")
    inclusions = Inclusions(trees)
    for path, tree in trees.items():
        _SourceFile(path, tree, found, inclusions, limits, limiters).read()
    found.problems += found.differences()
    if text := "\n".join(found.toml()).rstrip():
        print(text)
    try:
        if "[[rules]]" in text:
            Rules.loads(text, format="toml", source="<rules>")
        elif not found.problems:
            found.problems.append("no limit of slowapi or flask-limiter is here")
    except RulesError as error:
        found.problems.append(str(error))
    for problem in found.problems:
        say(problem)
    if found.problems:
        raise typer.Exit(NOTHING_DONE)


def _sources(path: Path) -> Iterator[Path]:
    """Yield a file, or those of a program in a folder: not what is installed there, nor what is hidden."""
    for file in path.rglob("*.py") if path.is_dir() else [path]:
        parts = file.relative_to(path).parts
        if "site-packages" not in parts and not any(part.startswith(".") for part in parts):
            yield file


class _SourceFile:
    """Reads one file into `found`.

    `limits` are the names of those that were read where their files use them, and `limiters` those of Limiters.
    """

    def __init__(
        self, path: Path, tree: ast.Module, found: Found, inclusions: Inclusions, limits: set[str], limiters: set[str]
    ) -> None:
        self._path, self._tree, self._found, self._inclusions = path, tree, found, inclusions
        self._limits, self._limiters = limits, limiters
        self._has_slowapi = "slowapi" in {getattr(each, "module", None) for each in ast.walk(tree)}
        self._by_url = set[str]()  # patterns that slowapi counts by URL
        self._read: set[ast.AST] = set()
        self._told = dict[tuple[int, str], tuple[Prefixes, Written]]()
        self._routes: list[SourceRoute] = []

    def read(self) -> None:
        """Take the limiter, and then the functions with a limit."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and last(node.func) == "Limiter":
                self._limiter(node)
        for function, prefixes in prefixes_by_function(self._tree):
            self._function(function, prefixes)
        for function, problem in overlaps(self._routes):
            self._tell(function, problem)
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node not in self._read:
                if (name := node.func.attr) in (*LIMITS, "exempt") and self._is_of_limiter(node.func):  # no decorator
                    self._tell(node, f"{name} is applied in a way that is not read: write its rule by hand")
                elif name == "mount":
                    problem = "paths of a mounted application are below a prefix, which is not seen: check their match"
                    self._tell(node, problem)
            said = node.value if isinstance(node, ast.Constant) else getattr(node, "id", getattr(node, "arg", ""))
            if isinstance(said, str) and _SETTING(said):
                self._tell(node, f"{said} sets limits of all routes: write their rule by hand")
            if isinstance(node, ast.ImportFrom):
                for name in sorted(self._limits & {each.name for each in node.names}):
                    self._tell(node, f"{name} is a limit that was made elsewhere: write its rule by hand")

    def _limiter(self, call: ast.Call) -> None:
        self._hint(call)
        given = given_to(call)
        key = given.get("key_func") or (call.args[0] if call.args else None)
        caller = ast.unparse(key) if key is not None and last(key) not in _ADDRESSES else ""
        if key is not None and caller:
            self._tell(key, 'keys have {user}: let identify return {"user": ...} as this key_func does')
        whole = [tuple(self._quotas(given.get(f"{each}_limits"))) for each in ("default", "application")]
        self._found.limiters.append(MigratedLimiter(f"{self._path}:{call.lineno}", caller, *whole))
        if "application_limits" in given and self._has_slowapi:
            self._tell(call, "application: slowapi asks it for routes alone that have no limit of their own")

    def _function(self, function: Function, prefixes: Prefixes) -> None:
        called = [_called(each) for each in function.decorator_list]
        self._read.update(function.decorator_list)
        if "request_filter" in map(last, called):
            self._tell(function, f"{function.name} exempts requests: add it to exempt, and pass functions={{...}}")
        is_exempt = any(last(each) == "exempt" and self._is_of_limiter(each) for each in called)
        seen = partial(self._inclusions.seen, self._path)
        paths = [path for each in function.decorator_list for path in written(each, prefixes, seen)]
        patterns = [path.pattern for path in paths if path.pattern]
        self._by_url.update(path.pattern for path in paths if "{" in path.text)
        for each in function.decorator_list:
            if last(each) in (*LIMITS, *self._limits):
                self._tell(function, f"{function.name} has a limit that was made elsewhere: write its rule by hand")
        calls = [each for each in function.decorator_list if isinstance(each, ast.Call) and last(each.func) in LIMITS]
        for path in paths if calls or is_exempt else ():
            before = self._told.setdefault((id(prefixes), path.problem), (prefixes, path))
            if path.problem and (before[1] is path or not path.pattern):  # a router is reported once
                self._tell(path.node, path.problem)
        if (calls or is_exempt) and not patterns:
            what = "has a limit, and no route that is written here: add its path as match"
            self._tell(function, f"{function.name} {what}")
        self._found.exempt += patterns if is_exempt else []
        read = [self._limit(function, call, patterns) for call in calls if patterns]
        if not all(is_whole for _, is_whole in read):  # the default limits stay in force
            in_part = [rule for rule in self._found.rules.values() if rule.quotas and rule.match == patterns]
            for rule in in_part:
                rule.replaces = False
            if in_part:
                what = "is read in part, so its rule does not replace the default limits"
                self._tell(function, f"{function.name} {what}")
        rules = list(dict.fromkeys(rule for rule, _ in read))
        self._routes += [SourceRoute(path, function, rules, is_exempt) for path in paths if path.pattern]

    def _limit(self, function: Function, call: ast.Call, patterns: list[str]) -> tuple[MigratedRule, bool]:
        """Take one limit of a function; return its rule, and whether all of it was read."""
        self._hint(call)
        given = given_to(call)
        asked = call.args[0] if call.args else given.get("limit_value")
        quotas = self._quotas(asked)
        cost, override = given.get("cost"), given.get("override_defaults")
        number = cost.value if isinstance(cost, ast.Constant) and isinstance(cost.value, int) else 1
        rule = self._rule(function, call, patterns, number)
        rule.quotas += [quota for quota in quotas if quota not in rule.quotas]
        rule.match += [pattern for pattern in patterns if pattern not in rule.match]
        if (methods := given.get("methods")) is not None and (names := methods_of(methods)):
            rule.match = [f"{names} {pattern.split()[-1]}" for pattern in patterns]
        elif methods is not None:
            self._tell(methods, "its methods are no texts that stand here: write them into its match")
        if cost is not None and not isinstance(cost, ast.Constant):
            self._tell(cost, "its cost is a function: name it as cost, and pass functions={...}")
        if isinstance(override, ast.Constant):
            rule.replaces = bool(override.value)
        return rule, len(quotas) == len(listed(asked)) and (override is None or isinstance(override, ast.Constant))

    def _rule(self, function: Function, call: ast.Call, patterns: list[str], cost: int) -> MigratedRule:
        """Return the rule of a limit. Where others share it with another cost, it is one more rule of the same key."""
        given = given_to(call)
        own, scope = given.get("key_func"), given.get("scope", call.args[1] if len(call.args) > 1 else None)
        is_shared = last(call.func) == "shared_limit" and isinstance(scope, ast.Constant)
        name = key = str(scope.value) if is_shared and isinstance(scope, ast.Constant) else function.name
        if last(call.func) == "shared_limit" and not is_shared:
            self._tell(call, "its scope is no text that stands here: let the rules that share it have one key")
        before = self._found.rules.get(name)
        if is_shared and before is not None and before.cost != cost:
            name = f"{name}-{cost}"
        elif not is_shared and before is not None and before.match != patterns:
            name = key = f"{self._path.stem}.{name}"
        by_url = self._by_url.intersection(() if is_shared else patterns)
        fields = {each for pattern in by_url for each in re.findall(r"\{\w+\}", re.sub(r"\*$", "{path}", pattern))}
        if fields:
            what = "slowapi counts each URL by itself, this rule all of them together"
            self._tell(call, f"{function.name}: {what}: write {', '.join(sorted(fields))} into its key for that")
        value = "" if own is None else last(_called(own)) or "caller"  # the field of its key
        if value:
            value = "ip" if value in _ADDRESSES else value
            name = key = f"{name}-{value}"
        return self._found.rules.setdefault(name, MigratedRule(name, [], cost=cost, key=key, value=value))

    def _is_of_limiter(self, name: ast.expr) -> bool:
        """Whether a name such as `limiter.exempt` is of a limiter, and not of a query or another extension."""
        owner = last(name.value) if isinstance(name, ast.Attribute) else ""
        return owner in self._limiters or "limit" in owner.lower()

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
            if each.arg in _HINTS and not (each.arg == "key_func" and last(call.func) == "Limiter"):
                self._tell(each.value, f"{each.arg}: {_HINTS[each.arg]}")
            elif each.arg not in (*_HINTS, *_QUIET, "application_limits"):
                self._tell(each.value, f"{each.arg} is not moved")

    def _tell(self, node: Any, problem: str) -> None:
        told = f"{self._path}:{node.lineno}: {problem}"
        if told not in self._found.problems:  # a limit in a variable is read at each of its routes
            self._found.problems.append(told)


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator

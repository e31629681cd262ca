"""What `migrate` has found: routes, which of them a wider one takes in, and rules, as they are printed."""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from batchlimit.rules.pattern import Pattern

_DEEP = re.compile(r"(?:<path:\w+>|\{\w+:path\})(?=.)").search
_METHODS = ("get", "post", "put", "patch", "delete", "head", "options")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Prefixes = Mapping[str, str | None]
"""The prefix of each router by its name; None: it has several, or one that is no text."""
_TOGETHER = "# There, the default limits were for each route by itself; here they are for all such routes together."


def last(name: ast.expr) -> str:
    """Return the last word of a name such as `limiter.limit`; of anything else, nothing."""
    return name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""


def given_to(call: ast.Call) -> dict[str | None, ast.expr]:
    """Return the keyword arguments of a call."""
    return {each.arg: each.value for each in call.keywords}


def listed(given: ast.expr | None) -> list[ast.expr]:
    """Return what a list, a tuple or a set has, or what is none of them."""
    return given.elts if isinstance(given, ast.List | ast.Tuple | ast.Set) else [] if given is None else [given]


def methods_of(given: ast.expr | None) -> str:
    """Return the methods of a route or a limit as rules write them; "": they are not all written here."""
    named = [str(each.value).upper() if isinstance(each, ast.Constant) else "" for each in listed(given)]
    return ",".join(named) if all(named) else ""


def prefixes_by_function(scope: ast.AST, outer: Prefixes | None = None) -> Iterator[tuple[Function, Prefixes]]:
    """Yield each function of a module or a function, with the routers that are known where it stands."""
    inner: list[Function] = []
    mine = dict[str, str | None]()
    for name, prefix in made_routers(_below(scope, inner)):
        mine[name] = prefix if mine.get(name, prefix) == prefix else None
    known = {**(outer or {}), **mine}
    for function in inner:
        yield function, known
        yield from prefixes_by_function(function, known)


def _below(scope: ast.AST, inner: list[Function]) -> Iterator[ast.AST]:
    """Yield all nodes of a scope; add the functions in it, whose nodes are not among them, to `inner`."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, Function):
            inner.append(node)
        else:
            yield node
            yield from _below(node, inner)


def named_calls(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.Call]]:
    """Yield each call that makes what a name stands for, after the name."""
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            yield node.target if isinstance(node, ast.AnnAssign) else node.targets[0], node.value


def made_routers(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str | None]]:
    """Yield the name of each router that is made here, and its prefix; None: that is no text that stands here."""
    for name, call in named_calls(nodes):
        if isinstance(name, ast.Name) and last(call.func).endswith(("Router", "Blueprint")):
            given = given_to(call)
            prefix = given.get("prefix") or given.get("url_prefix") or ast.Constant("")
            yield name.id, str(prefix.value or "") if isinstance(prefix, ast.Constant) else None


class Written(NamedTuple):
    """What a decorator says of a path."""

    node: ast.expr  # the decorator
    pattern: str  # as rules write it; "": the path is no text that stands here
    text: str  # the path as it is written, without the prefix of its router
    problem: str  # what is to be checked, or ""


Seen = Callable[[ast.expr, Prefixes], tuple[str | None, list[str] | None]]
"""Returns the prefix of what an expression names, and its whole prefixes; None: these are not seen."""


def written(decorator: ast.expr, prefixes: Prefixes, seen: Seen) -> Iterator[Written]:
    """Yield the paths of a decorator of a route."""
    if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, ast.Attribute):
        return
    kind, owner = decorator.func.attr, decorator.func.value
    given = given_to(decorator)
    path = decorator.args[0] if decorator.args else given.get("path")
    if kind not in (*_METHODS, "route", "api_route"):
        return
    if not isinstance(path, ast.Constant):
        yield Written(decorator, "", "", "this path is no text that stands here: add it to match")
        return
    text, router, (prefix, below) = str(path.value), ast.unparse(owner), seen(owner, prefixes)
    if _DEEP(text):
        yield Written(decorator, "", "", f"no pattern says {text}: add the nearest to match, with '/*' at its end")
        return
    if prefix is None:
        yield Written(decorator, "", "", f"{router} has no one prefix that is written here: add the path to match")
        return
    methods = methods_of(given.get("methods", ast.Constant(kind if kind in _METHODS else "GET")))
    if not methods:
        yield Written(decorator, "", "", "its methods are no texts that stand here: add them with the path to match")
        return
    problem = f"{router} may be included below a prefix, which is not seen: check the match of each of its routes"
    for each in below or [prefix]:
        pattern = f"{methods} {_pattern(each + text) or '/'}"
        yield Written(decorator, pattern, text, problem if below is None else "")


def _pattern(path: str) -> str:
    """Return a path of Flask or Starlette as rules write it."""
    path = re.sub(r"<path:\w+>$|\{\w+:path\}$", "*", path)
    return re.sub(
        r"<(?:\w+(?:\([^)]*\))?:)?(\w+)>|\{(\w+)(?::\w+)?\}", lambda found: f"{{{found[1] or found[2]}}}", path
    )


@dataclass(eq=False)
class MigratedRule:
    """A rule to print."""

    name: str  # those of the rule
    quotas: list[str]
    match: list[str] = field(default_factory=list)
    cost: int = 1
    replaces: bool = True  # whether the default limits do not hold where it does
    key: str = ""  # that of another rule, with another cost (default "": its name)
    others: "list[MigratedRule]" = field(default_factory=list)  # of wider paths, which do not hold where it does
    value: str = ""  # the field of its key (default "": that of the limiter)


class MigratedLimiter(NamedTuple):
    """A limiter of a program: what holds for all its routes."""

    place: str = ""
    caller: str = ""  # what tells callers apart, if it is not their address
    defaults: tuple[str, ...] = ()  # quotas of each route by itself, and of all together
    together: tuple[str, ...] = ()


@dataclass
class Found:
    """Keeps what is read of a program."""

    rules: dict[str, MigratedRule] = field(default_factory=dict)  # by name
    limiters: list[MigratedLimiter] = field(default_factory=list)
    exempt: list[str] = field(default_factory=list)  # patterns
    problems: list[str] = field(default_factory=list)  # what cannot be read, with its place

    @property
    def limiter(self) -> MigratedLimiter:
        """The first limiter with limits for all routes; if none has them, the first."""
        return max(self.limiters, key=lambda each: bool(each.defaults or each.together), default=MigratedLimiter())

    def differences(self) -> Iterator[str]:
        """Yield a remark for each limiter that says another thing than the one whose limits are taken."""
        taken = self.limiter
        for each in self.limiters:
            if each[1:] != taken[1:]:
                what = f"its default limits or key_func are not those of {taken.place}, which are taken"
                yield f"{each.place}: {what}: where they are of two programs, run migrate on each by itself"

    def toml(self) -> Iterator[str]:
        if self.exempt:
            yield f"exempt = {json.dumps(self.exempt)}\n"
        if self.limiter.defaults:
            yield _TOGETHER
        whole = [("application", self.limiter.together), ("default", self.limiter.defaults)]
        rules = [MigratedRule(name, list(quotas), ["*"], replaces=False) for name, quotas in whole]
        for rule in (each for each in (*rules, *self.rules.values()) if each.quotas):
            yield f"[[rules]]\nname = {json.dumps(rule.name)}\nquota = {json.dumps('; '.join(rule.quotas))}"
            value = rule.value or ("user" if self.limiter.caller else "ip")
            key = f"{rule.key or rule.name}:{{{value}}}"
            yield f"key = {json.dumps(key)}\nmatch = {json.dumps(rule.match)}"
            yield from [f"cost = {rule.cost}"] if rule.cost != 1 else []
            replaced = ["default"] if rule.replaces and self.limiter.defaults else []
            replaced += [other.name for other in rule.others if other.quotas]
            yield from [f"replaces = {json.dumps(replaced if len(replaced) > 1 else replaced[0])}"] if replaced else []
            yield ""


class SourceRoute(NamedTuple):
    """One path of a function, in the order of the source."""

    path: Written  # the path
    function: Function  # where it stands
    rules: list[MigratedRule]  # its limits
    is_exempt: bool  # whether it has none on purpose


def overlaps(routes: Sequence[SourceRoute]) -> Iterator[tuple[Function, str]]:
    """Have the rules of each route replace those of wider ones, which have none of its requests; yield what remains."""
    for number, wide in enumerate(routes):
        for place, exact in enumerate(routes):
            asked = exact.path.pattern
            is_wider = not exact.is_exempt and _takes_in(wide.path.pattern, asked)
            others = [rule for rule in wide.rules if is_wider and rule not in exact.rules]
            others = [rule for rule in others if any(_takes_in(each, asked) for each in rule.match)]
            if not others:
                continue
            if number < place and "<" not in wide.path.text:  # Starlette takes the first, and Flask the most exact one
                taken = f"{wide.path.pattern}, above it, takes its requests"
                yield exact.function, f"{exact.path.pattern} is never reached: {taken}"
            elif not exact.rules or any(rule in other.others for rule in exact.rules for other in others):
                what = f"charged to {', '.join(rule.name for rule in others)} too: write a rule for it with replaces"
                yield exact.function, f"{exact.path.pattern} is {what}"
            else:
                for rule in exact.rules:
                    rule.others += [other for other in others if other not in rule.others]


def _takes_in(wide: str, exact: str) -> bool:
    """Whether a pattern matches all that another one does, and more."""
    try:
        one, two = Pattern.parse(wide), Pattern.parse(exact)
    except ValueError:  # a path that rules do not know: loading the rules tells of it
        return False
    is_wider = all(mine in (None, theirs) for mine, theirs in zip(one.segments, two.segments, strict=False))
    is_same = (one.segments, one.rest) == (two.segments, two.rest)
    return one.overlaps(two) and is_wider and not is_same and (one.rest or not two.rest)

"""What lets a request off; and why each rule applies to a request or does not, as text for people.

A rule matches every spelling of a path, so that no client gets around it. What lets a request off is the other way
round: no client may choose a spelling of its path that is exempt, and that the application reads as another path.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from typing import Literal, NamedTuple

from batchlimit.base.redaction import escaped, shown
from batchlimit.rules.key import KeyTemplate, NoKey
from batchlimit.rules.matcher import Matcher, is_odd, readings
from batchlimit.rules.pattern import Pattern
from batchlimit.rules.request import Match, Request
from batchlimit.rules.rule import Rule, RulesError

Exempts = Callable[[Request], bool]
Exempt = str | Exempts | Sequence[str | Exempts]
Outcome = Literal["applies", "no key", "no match", "exempt", "replaced"]


class Exactly(NamedTuple):
    """A pattern that matches what it says, and no other spelling of it: case and the last slash count."""

    text: str  # as it was written
    pattern: Pattern  # what it is read as; only its methods count here
    form: re.Pattern[str]  # what matches the path

    @classmethod
    def parse(cls, text: str) -> "Exactly":
        """Read a pattern. Raises ValueError or TypeError for one that can never match."""
        pattern = Pattern.parse(text)
        path = text.split()[-1]
        above = path.removesuffix("*").removesuffix("/")
        fields = re.sub(r"/\\\{[^/]*?\\\}(?=/|$)", "/[^/]+", re.escape(above))
        return cls(text, pattern, re.compile(fields + ("(?:/.*)?" if pattern.rest else "/" * path.endswith("/"))))

    def matches(self, method: str, path: str, root: str = "") -> bool:
        """Whether it matches a path that can be read in one way only, as a whole or below where it is mounted."""
        if is_odd(path) or not self.pattern.takes(method):
            return False
        below = path.removeprefix(root.rstrip("/"))
        return self.form.fullmatch(path) is not None or (below[:1] == "/" and self.form.fullmatch(below) is not None)


class Exemption:
    """Requests that no rule is for, by patterns, and functions of the Request that return whether it is exempt."""

    __slots__ = ("functions", "given", "patterns")

    def __init__(self, given: Exempt = ()) -> None:
        self.given = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
        self.functions = tuple([each for each in self.given if callable(each)])
        for function in self.functions:
            if iscoroutinefunction(function):
                raise RulesError(
                    f"{shown(function)} is asynchronous: let identify ask, and exempt look", field="exempt"
                )
        try:
            self.patterns = [Exactly.parse(each) for each in self.given if not callable(each)]
        except (ValueError, TypeError) as error:
            raise RulesError(str(error), field="exempt") from error
        for each in self.patterns:
            each.pattern.warn(each.text)

    def by_path(self, method: str, path: str, root: str) -> bool:
        """Whether a pattern exempts requests."""
        return any(each.matches(method, path, root) for each in self.patterns)

    def why(self, request: Request) -> str:
        """Return what exempts a request, for people; "": nothing does."""
        method, path, _, _, root = request
        found = [f"{each.text} is exempt" for each in self.patterns if each.matches(method, path, root)]
        with suppress(Exception):  # the caller's log has what a function raises
            found += ["a function exempts it"] if self.by_functions(request) else []
        return "; ".join(found)

    def by_functions(self, request: Request) -> bool:
        """Whether a function exempts a request. Raises what it raises, and TypeError if it returns no bool."""
        for function in self.functions:
            told: object = function(request)
            if told is True:
                return True
            if told is not False and told is not None:
                raise TypeError(f"exempt returns True or False, not {type(told).__name__}")
        return False


class Verdict(NamedTuple):
    """Whether one rule applies to a request, and why.

    Attributes:
        rule: the rule.
        outcome: "applies", or "no match". Or it matches, but "no key" (its key could not be made), "exempt" (the
            request is) or "replaced" (by another rule).
        key: the key in the store; None unless it applies.
        why: which pattern matches and what the key is made of, or why not.

    Example:
        >>> from batchlimit.rules import Request, Rule, Rules
        >>> rules = Rules([Rule("login", "5/minute", key="login:{ip}", match="POST /login")])
        >>> rules.explain(Request("GET", "/login")).verdicts[0].why
        'POST /login is for other methods'
    """

    rule: Rule
    outcome: Outcome
    key: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether each rule applies to a request, and why; `str` makes a table of it.

    Attributes:
        request: the request.
        verdicts: one for each rule, in the order of the rules.

    Example:
        >>> from batchlimit.rules import Request, Rule, Rules
        >>> rules = Rules([Rule("api", "100/s", key="user:{user}", match="/api/*"), Rule("all", "5000/s", key="all")])
        >>> print(rules.explain(Request("GET", "/api/items", {"user": "ann"})))
        GET /api/items
          applies  api  user:ann  100/s   /api/* matches; user from the identity
          applies  all  all       5000/s  * matches
    """

    request: Request
    verdicts: tuple[Verdict, ...]

    def __str__(self) -> str:
        rows = []
        for rule, outcome, key, why in self.verdicts:
            cost = "" if rule.cost == 1 else f" cost {rule.cost}" if isinstance(rule.cost, int) else " cost by function"
            terms = f"{rule.quota}{cost}{'' if rule.mode == 'enforce' else f' {rule.mode}'}"
            rows.append((outcome, rule.name, escaped(key or "-"), terms, escaped(why)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n  ".join([escaped(f"{self.request.method} {self.request.path}"), *(line.rstrip() for line in lines)])


def explain(rules: Iterable[Rule], request: Request, exempt: str, replaced: Mapping[str, str]) -> Explanation:
    """Return whether each rule applies, and why; none does if `exempt` says why, nor those that are `replaced`."""
    verdicts = []
    for rule in rules:
        verdict = _verdict(rule, request)
        if verdict.outcome != "no match" and exempt:
            verdict = Verdict(rule, "exempt", None, exempt)
        elif verdict.outcome != "no match" and rule.name in replaced:
            verdict = Verdict(rule, "replaced", None, f"rule {replaced[rule.name]!r} replaces it")
        verdicts.append(verdict)
    return Explanation(request, tuple(verdicts))


def _verdict(rule: Rule, request: Request) -> Verdict:
    patterns = [(text, Pattern.parse(text)) for text in rule.match]
    paths = set()
    for number, reading in enumerate(readings(request.path, request.root)):
        for text, pattern in patterns:
            whatever = Matcher([(rule, [replace(pattern, methods=None)])])  # the method
            for _, _, parameters in whatever.read("", reading):
                paths.add(text)
                if pattern.takes(request.method.upper()):
                    other = f" {shown(reading)}, another reading of the path" if number else ""
                    return _keyed(Match(rule, parameters), f"{text} matches{other}", request)
    why = "; ".join(f"{text} is for other {'methods' if text in paths else 'paths'}" for text, _ in patterns)
    return Verdict(rule, "no match", None, why or "routes ask for it by its key")


def _keyed(match: Match, matches: str, request: Request) -> Verdict:
    template = KeyTemplate(match.rule.key)
    try:
        key = template.fill(request.identity, match.parameters)
        sources = [f"{name} from the {'identity' if name in request.identity else 'path'}" for name in template.fields]
    except NoKey as error:
        return Verdict(match.rule, "no key", None, f"{matches}; {error}")
    except Exception as error:  # noqa: BLE001  # the identity is the user's, and this tells what it did
        return Verdict(match.rule, "no key", None, f"{matches}; the identity raised {type(error).__name__}: {error}")
    return Verdict(match.rule, "applies", key, "; ".join([matches, *sources]))

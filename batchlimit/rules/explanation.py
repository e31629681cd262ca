"""Which rules apply to a request, with which key, and why: as text for people."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from batchlimit.base.redaction import escaped, shown
from batchlimit.rules.key import KeyTemplate, NoKey
from batchlimit.rules.matcher import Matcher, readings
from batchlimit.rules.pattern import Pattern
from batchlimit.rules.request import Match, Request
from batchlimit.rules.rule import Rule

Outcome = Literal["applies", "no key", "no match", "exempt", "replaced"]


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
        rows = [
            (outcome, rule.name, escaped(key or "-"), _terms(rule), escaped(why))
            for rule, outcome, key, why in self.verdicts
        ]
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
            for found in Matcher([(rule, [replace(pattern, methods=None)])]).read("", reading):  # whatever the method
                paths.add(text)
                if pattern.takes(request.method.upper()):
                    other = f" {shown(reading)}, another reading of the path" if number else ""
                    return _keyed(Match(*found), f"{text} matches{other}", request)
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


def _terms(rule: Rule) -> str:
    """Return quota, cost and mode."""
    cost = "" if rule.cost == 1 else f" cost {rule.cost}" if isinstance(rule.cost, int) else " cost by function"
    return f"{rule.quota}{cost}{'' if rule.mode == 'enforce' else f' {rule.mode}'}"

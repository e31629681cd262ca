"""Several rules, checked against each other, and which of them apply to a request."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from batchlimit.quota.quota import Quota
from batchlimit.redaction import shown
from batchlimit.rules.errors import RulesError
from batchlimit.rules.explanation import Explanation, explain
from batchlimit.rules.key import KeyTemplate, NoKey
from batchlimit.rules.matcher import Matcher
from batchlimit.rules.pattern import Pattern
from batchlimit.rules.request import Applicable, Applied, Match, Request, Unmade
from batchlimit.rules.rule import Rule

# Made for each rule of each request: half the time of a call of the class.
_applied = partial(tuple.__new__, Applied)


class Rules:
    """All rules of a service. Every rule that matches a request applies to it.

    Args:
        rules: each with a name of its own. Rules with one key share its bucket, so they have one quota.

    Attributes:
        quotas: patterns of keys, each with its quota: for `RateLimiter.from_url(url, rules.quotas)`.

    Raises:
        RulesError: two rules contradict each other.

    Example:
        >>> from batchlimit.rules import Request, Rule, Rules
        >>> rules = Rules([
        ...     Rule("login", "5/minute", key="login:{ip}", match="POST /login"),
        ...     Rule("all", "5000/s", key="all"),
        ... ])
        >>> [applied.key for applied in rules.applicable(Request("POST", "/login", {"ip": "203.0.113.9"})).applied]
        ['login:203.0.113.9', 'all']
    """

    __slots__ = ("_matcher", "_rules", "quotas")

    quotas: Mapping[str, Quota]

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)
        _check_names(self._rules)
        keys = tuple(KeyTemplate(rule.key) for rule in self._rules)
        self.quotas = MappingProxyType(_quotas(self._rules, keys))
        self._matcher = Matcher(
            ((rule, key), [Pattern.parse(text) for text in rule.match])
            for rule, key in zip(self._rules, keys, strict=True)
        )

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __repr__(self) -> str:
        return f"<Rules {', '.join(rule.name for rule in self._rules)}>"

    def matching(self, method: str, path: str) -> tuple[Match, ...]:
        """Return the rules whose patterns match.

        Args:
            method: the method; case does not matter.
            path: the whole path, percent-decoded once and without the query.

        Returns:
            The rules in their order, each with the path parameters of its pattern.

        Example:
            >>> from batchlimit.rules import Rule, Rules
            >>> rules = Rules([Rule("items", "100/s", key="item:{id}", match="/items/{id}")])
            >>> [dict(match.parameters) for match in rules.matching("GET", "/items/7")]
            [{'id': '7'}]
        """
        return tuple([Match(rule, parameters) for (rule, _), parameters in self._matcher.find(method, path)])

    def applicable(self, request: Request) -> Applicable:
        """Return the rules that a request is charged to, and those whose key could not be made.

        Args:
            request: the request.

        Returns:
            Both; neither has rules that do not match.

        Example:
            >>> from batchlimit.rules import Request, Rule, Rules
            >>> rules = Rules([Rule("api", "100/s", key="user:{user}", match="/api/*")])
            >>> rules.applicable(Request("GET", "/api/items", {"user": None})).unmade[0].reason
            'there is no {user}'
        """
        applied, unmade, identity = [], [], request.identity
        for (rule, key), parameters in self._matcher.find(request.method, request.path):
            try:
                applied.append(_applied((rule, key.fill(identity, parameters))))
            except Exception as error:  # noqa: BLE001  # the identity is the user's; the caller says what becomes of it
                unmade.append(_unmade(rule, error))
        return Applicable(tuple(applied), tuple(unmade))

    def explain(self, request: Request) -> Explanation:
        """Say which rules apply, with which key, and why; and why the others do not. For people: it takes its time.

        Args:
            request: the request.

        Returns:
            A verdict for each rule; `str` makes a table of them.

        Example:
            >>> from batchlimit.rules import Request, Rule, Rules
            >>> rules = Rules([Rule("login", "5/minute", key="login:{ip}", match="POST /login")])
            >>> print(rules.explain(Request("POST", "//login", {"ip": "203.0.113.9"})))
            POST //login
              applies  login  login:203.0.113.9  5/m  POST /login matches; ip from the identity
        """
        return explain(self, request)


def _unmade(rule: Rule, error: Exception) -> Unmade:
    if isinstance(error, NoKey):
        return Unmade(rule, str(error))
    return Unmade(rule, f"the identity raised {type(error).__name__}", error)


def _check_names(rules: tuple[Rule, ...]) -> None:
    names = set()
    for rule in rules:
        if not isinstance(rule, Rule):
            raise TypeError(f"Rules are made of Rule objects, not of {shown(rule)}")
        if rule.name in names:
            raise RulesError("two rules have this name: headers and metrics could not tell them apart", rule=rule.name)
        names.add(rule.name)


def _quotas(rules: tuple[Rule, ...], keys: tuple[KeyTemplate, ...]) -> dict[str, Quota]:
    """Return the quota of each pattern of keys. RulesError if a key could be of two kinds."""
    first: dict[tuple[object, ...], int] = {}
    for number, key in enumerate(keys):
        for shape, earlier in first.items():
            if shape == key.shape:
                _check_shared(rules[earlier], rules[number])
            elif keys[earlier].overlaps(key):
                raise _overlap(rules[earlier], rules[number])
        first.setdefault(key.shape, number)
    # A pattern's star matches colons too. Patterns with more of them come first, so that a key meets its own pattern.
    order = sorted(first.values(), key=lambda number: -len(keys[number].segments))
    return {keys[number].pattern: rules[number].quota for number in order}


def _check_shared(one: Rule, other: Rule) -> None:
    """Check that two rules whose keys are the same agree on what belongs to the key."""
    for what in ("quota", "on_failure", "mode"):
        if (theirs := getattr(one, what)) != (mine := getattr(other, what)):
            raise RulesError(
                f"it shares its keys, {shown(other.key)}, with rule {one.name!r}, "
                f"whose {what} is another: {mine} against {theirs}. {_renaming(other)}",
                rule=other.name,
                field="key",
            )


def _overlap(one: Rule, other: Rule) -> RulesError:
    problem = f"a client could choose a value that makes its key {shown(other.key)} one of rule {one.name!r}"
    return RulesError(f"{problem}, {shown(one.key)}. {_renaming(other)}", rule=other.name, field="key")


def _renaming(rule: Rule) -> str:
    return f"Rename one key, as in {shown(rule.name.replace('/', '-') + ':' + rule.key)}"

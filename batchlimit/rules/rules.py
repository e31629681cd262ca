"""Several rules, checked against each other, and which of them apply to a request."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from os import PathLike, fspath
from types import MappingProxyType
from typing import Self

from batchlimit.base.redaction import shown
from batchlimit.base.setting import names, of_kind
from batchlimit.quota.failure_policy import CLOSED, FailurePolicy
from batchlimit.quota.overrides.code import CodeLimit
from batchlimit.quota.quota import Quota
from batchlimit.rules import conflicts
from batchlimit.rules.explanation import Exactly, Exempt, Exemption, Explanation, explain
from batchlimit.rules.files.loader import Format, Functions, Loader, decoded, format_of, opened
from batchlimit.rules.key import KeyTemplate
from batchlimit.rules.matcher import Found, Matcher, Memory
from batchlimit.rules.pattern import Pattern
from batchlimit.rules.request import Applicable, Match, Request, Template, keyed
from batchlimit.rules.rule import Mode, Rule


class Rules:
    """All rules of a service. Every rule that matches a request applies to it, unless another one replaces it.

    Args:
        rules: each with a name of its own. Rules with one key share its bucket, so they have one quota.
        identities: the names that the identity of every request has, such as {"ip", "user"} (default None). With them a
            field of a key is an error that is neither an identity nor a path parameter.
        exempt: requests that no rule is for: patterns such as "GET /health", functions of the Request that return
            whether it is exempt, or several of both (default none). They match a path exactly as it is written.
        limits: quotas of some keys in place of that of their rule, by key or pattern: `{"user:pro:*": "600/m"}`
            (default none).

    Raises:
        RulesError: two rules contradict each other, or no rule has the keys of a limit.

    Example:
        >>> from batchlimit.rules import Request, Rule, Rules
        >>> rules = Rules([
        ...     Rule("login", "5/minute", key="login:{ip}", match="POST /login"),
        ...     Rule("all", "5000/s", key="all"),
        ... ])
        >>> [applied.key for applied in rules.applicable(Request("POST", "/login", {"ip": "203.0.113.9"})).applied]
        ['login:203.0.113.9', 'all']
    """

    __slots__ = ("_by_pattern", "_limits", "_matcher", "_matching", "_of_routes", "_replacing", "_rules", "exemption")

    def __init__(
        self,
        rules: Iterable[Rule],
        *,
        identities: Iterable[str] | None = None,
        exempt: Exempt = (),
        limits: Mapping[str, Quota | str] = MappingProxyType({}),
    ) -> None:
        if isinstance(rules, str | PathLike) or not isinstance(rules, Iterable):
            raise TypeError(f"Rules are made of Rule objects, not of {shown(rules)}; Rules.load reads a file")
        known = None if identities is None else names("identities", identities)
        self._rules, self.exemption = tuple(rules), Exemption(exempt)
        conflicts.check_names(self._rules)
        keys = tuple(KeyTemplate(rule.key) for rule in self._rules)
        self._by_pattern = conflicts.by_pattern(self._rules, keys)
        self._limits = conflicts.check_limits(limits, self._by_pattern)
        self._of_routes = conflicts.by_key(self._rules)
        conflicts.check_replaced(self._rules)
        if known is not None:
            conflicts.check_values(self._rules, keys, frozenset(known))
        replacing = [rule for rule in self._rules if rule.replaces and rule.mode == "enforce"]
        self._replacing = [(rule, [Exactly.parse(text) for text in rule.match]) for rule in replacing]
        self._matcher = Matcher(
            ((rule, key), [Pattern.parse(text) for text in rule.match])
            for rule, key in zip(self._rules, keys, strict=True)
        )
        self._matching = Memory(self._found)  # the rules that apply if all of them have a key

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        functions: Functions = MappingProxyType({}),
        identities: Iterable[str] | None = None,
    ) -> Self:
        """Read rules from a file.

        Args:
            path: a file in UTF-8 whose name ends with .toml, .yaml or .yml. YAML needs the extra `yaml`.
            functions: functions by name, for `cost`, `charge` and `exempt` that name one (default none).
            identities: as for Rules (default None: the `identities` of the file).

        Returns:
            The rules.

        Raises:
            RulesError: a rule cannot work; the message names file, line, column and rule.
            OSError: the file cannot be read.
            ModuleNotFoundError: the file is YAML, and PyYAML is not installed.
        """
        source = fspath(path)
        found = format_of(source)
        with opened(source) as file:
            data = file.read()
        return cls.loads(decoded(data, source), format=found, source=source, functions=functions, identities=identities)

    @classmethod
    def loads(
        cls,
        text: str,
        *,
        format: Format,  # noqa: A002
        source: str = "<text>",
        functions: Functions = MappingProxyType({}),
        identities: Iterable[str] | None = None,
    ) -> Self:
        """Read rules from a text.

        Args:
            text: the text.
            format: "toml" or "yaml". YAML needs the extra `yaml`.
            source: what errors call the text (default "<text>").
            functions, identities: as of `load`, with the same defaults.

        Returns:
            The rules.

        Raises:
            RulesError: a rule cannot work; the message names source, line, column and rule.
            ModuleNotFoundError: the text is YAML, and PyYAML is not installed.

        Example:
            >>> from batchlimit.rules import RulesError
            >>> text = "rules: [{name: all, quota: 5000/s, key: all, mtach: '*'}]"
            >>> try:
            ...     Rules.loads(text, format="yaml", source="rules.yaml")
            ... except RulesError as error:
            ...     print(error)
            rules.yaml:1:46: rule 'all': a rule has no field 'mtach': did you mean match?
        """
        of_kind("the text of rules", text, str, "a str")
        known = of_kind("functions", functions, Mapping, "a dict from names to functions")
        loader = Loader(text, format, source, known)
        return loader.together(cls, loader.rules(), identities)

    @property
    def quotas(self) -> Mapping[str, Quota]:
        """Patterns of keys, each with its quota: for `RateLimiter.from_url(url, rules.quotas)`."""
        return {pattern: limit.quota for pattern, limit in self.limits.items()}

    @property
    def own_quotas(self) -> Mapping[str, Quota]:
        """Those of some keys, in place of that of their rule: the `limits` that these Rules were made with."""
        return {name: limit.quota for name, limit in self._limits.items()}

    @property
    def on_failure(self) -> Mapping[str, FailurePolicy]:
        """Patterns of keys, each with its policy: for `on_failure=` of the limiter. "closed" for rules without one."""
        found = {pattern: rule.on_failure for pattern, rule in self._by_pattern.items() if rule.on_failure is not None}
        return {"*": CLOSED, **found}

    @property
    def limits(self) -> Mapping[str, CodeLimit]:
        """Patterns of keys, each with its quota, failure policy and mode: what a RuleFile says."""
        of_rules = self._by_pattern.items()
        return self._limits | {name: CodeLimit(rule.quota, rule.on_failure, rule.mode) for name, rule in of_rules}

    @property
    def mode(self) -> Mapping[str, Mode]:
        """Patterns of keys, each with its mode: for `mode=` of the limiter. It tells the fleet of shadow refusals."""
        return {pattern: rule.mode for pattern, rule in self._by_pattern.items()}

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes as rules; what was compiled of them is made anew."""
        return partial(type(self), exempt=self.exemption.given, limits=self.own_quotas), (self._rules,)

    def __repr__(self) -> str:
        return f"<Rules {', '.join(rule.name for rule in self._rules)}>"

    def matching(self, method: str, path: str) -> tuple[Match, ...]:
        """Return the rules whose patterns match.

        Args:
            method: the method; case does not matter.
            path: the whole path, percent-decoded once and without the query.

        Returns:
            The rules in their order, each with the path parameters of its pattern.
        """
        return tuple([Match(rule, parameters) for (rule, _), parameters in self._matching[method, path, ""]])

    def applicable(self, request: Request) -> Applicable:
        """Return the rules that a request is charged to, and those whose key could not be made.

        Args:
            request: the request.

        Returns:
            Both; neither has rules that do not match or are replaced, or any of a path that a pattern exempts. A rule
            whose key could not be made replaces no other.
        """
        method, path, identity, _, root = request
        found = keyed(self._matching[method, path, root], identity)
        if found.unmade and self._replacing:
            found = keyed(self._found(method, path, root, found.without_key), identity)
        return found

    def templates(self, method: str, path: str, root: str = "") -> tuple[Template, ...]:
        """Return the rules whose patterns match, each with what makes its key: for callers that remember it by path.

        Args:
            method, path: as of `matching`.
            root: where the application is mounted (default "": at the top).

        Returns:
            The rules in their order, each with its KeyTemplate and the path parameters: `template.fill(identity,
            parameters)` returns the key, or raises.

        Example:
            >>> from batchlimit.rules import Rule, Rules
            >>> rules = Rules([Rule("items", "100/s", key="item:{id}", match="/items/{id}")])
            >>> [template.fill({}, parameters) for _, template, parameters in rules.templates("GET", "/items/7")]
            ['item:7']
        """
        return tuple([(rule, key, parameters) for (rule, key), parameters in self._found(method, path, root)])

    def asked(self, key: str) -> Rule:
        """Return the rule that a route asks for: the one with this key and `match=None`.

        Args:
            key: the key of the rule, with its fields.

        Returns:
            The rule.

        Raises:
            RulesError: there is none.

        Example:
            >>> from batchlimit.rules import Rule, Rules
            >>> rules = Rules([Rule("search", "10/s", key="search:{user}", match=None)])
            >>> rules.asked("search:{user}").name
            'search'
        """
        rule = self._of_routes.get(key)
        if rule is None:
            raise conflicts.unasked(key, self._of_routes, self._rules)
        return rule

    def explain(self, request: Request) -> Explanation:
        """Say which rules apply, with which key, and why; and why the others do not. For people: it takes its time.

        Args:
            request: the request.

        Returns:
            A verdict for each rule; `str` makes a table of them.
        """
        method, path, _, _, root = request
        replaced = self._replaced(method, path, root, self.applicable(request).without_key)
        return explain(self, request, self.exemption.why(request), replaced)

    def _found(
        self, method: str, path: str, root: str, without: Collection[str] = ()
    ) -> Found[tuple[Rule, KeyTemplate]]:
        """Return the rules that apply; `without` are the names of those that replace nothing, for they have no key."""
        if self.exemption.patterns and self.exemption.by_path(method, path, root):
            return ()
        found = self._matcher.find(method, path, root)
        if self._replacing and (replaced := self._replaced(method, path, root, without)):
            return tuple([each for each in found if each[0][0].name not in replaced])
        return found

    def _replaced(self, method: str, path: str, root: str, without: Collection[str]) -> Mapping[str, str]:
        """Return the names of rules that do not apply, each with an enforced one that replaces it, by exact match."""
        return {
            name: rule.name
            for rule, patterns in self._replacing
            if rule.name not in without and any(each.matches(method, path, root) for each in patterns)
            for name in rule.replaces
        }

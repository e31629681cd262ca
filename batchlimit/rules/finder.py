"""Which rules apply to a request: those that match it, without those that are replaced; none, if it is exempt."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from batchlimit.rules.exemption import Exemption, Replacements
from batchlimit.rules.key import KeyTemplate
from batchlimit.rules.matcher import Found, Matcher
from batchlimit.rules.pattern import Pattern
from batchlimit.rules.request import Applicable, Request, keyed
from batchlimit.rules.rule import Rule

T = TypeVar("T")
Asked = tuple[str, str, str]
"""Method, path and root of a request."""
_MOST = 1024
_LONGEST = 160
"""Characters of a request that is remembered."""


class Memory(dict[Asked, T]):
    """Looks up what matches a request: `memory[method, path, root]`.

    Long requests are not remembered. A client that asks for ever other ones has all of them forgotten: nothing grows.

    Args:
        find: a function of method, path and root that finds what is not remembered.
    """

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[str, str, str], T]) -> None:
        self._find = find

    def __missing__(self, asked: Asked) -> T:
        """Find it, and remember it if it is short."""
        found = self._find(*asked)
        if sum(map(len, asked)) <= _LONGEST:
            if len(self) >= _MOST:
                self.clear()
            self[asked] = found
        return found


FoundRules = Found[tuple[Rule, KeyTemplate]]


class Finder:
    """Finds the rules of requests.

    Args:
        rules: all rules.
        keys: what makes the key of each.
        exemption: requests that no rule is for.

    Attributes:
        found: the rules that apply, by method, path and root, if all of them have a key.

    Example:
        >>> rules = [Rule("all", "9/s", key="all"), Rule("api", "9/m", key="api", match="/api/*", replaces="all")]
        >>> finder = Finder(rules, [KeyTemplate(rule.key) for rule in rules], Exemption("/health"))
        >>> [rule.name for (rule, _), _ in finder.found["GET", "/api/x", ""]], finder.found["GET", "/health", ""]
        (['api'], ())
    """

    __slots__ = ("_exemption", "_matcher", "_replacements", "found")

    def __init__(self, rules: Sequence[Rule], keys: Sequence[KeyTemplate], exemption: Exemption) -> None:
        self._exemption, self._replacements = exemption, Replacements(rules)
        self._matcher = Matcher(
            ((rule, key), [Pattern.parse(text) for text in rule.match]) for rule, key in zip(rules, keys, strict=True)
        )
        self.found = Memory(self._find)

    def applicable(self, request: Request) -> Applicable:
        """Return the rules that apply, each with its key or why it has none; one without a key replaces no other."""
        method, path, identity, _, root = request
        found = keyed(self.found[method, path, root], identity)
        if found.unmade and self._replacements:
            found = keyed(self._find(method, path, root, found.without_key), identity)
        return found

    def replaced(self, request: Request) -> Mapping[str, str]:
        """Return the names of the rules that are replaced, each with the name of one that applies in its place."""
        method, path, _, _, root = request
        return self._replacements.of(method, path, root, self.applicable(request).without_key)

    def _find(self, method: str, path: str, root: str, without: Collection[str] = ()) -> FoundRules:
        """Return the rules that apply; `without` are the names of those that replace nothing, for they have no key."""
        if self._exemption.by_path(method, path, root):
            return ()
        found = self._matcher.find(method, path, root)
        if self._replacements and (replaced := self._replacements.of(method, path, root, without)):
            return tuple([each for each in found if each[0][0].name not in replaced])
        return found

"""What rules look at, and what they answer."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from batchlimit.rules.key import KeyTemplate, NoKey

if TYPE_CHECKING:
    from batchlimit.rules.rule import Rule

NOTHING: Mapping[str, str] = MappingProxyType({})
Template = tuple["Rule", KeyTemplate, Mapping[str, str]]
"""A rule that matches, what makes its key, and the path parameters for that."""


class Request(NamedTuple):
    """What rules see of a request.

    Attributes:
        method: the method, such as "POST"; case does not matter. The handshake of a websocket is a "GET".
        path: the whole path, percent-decoded once and without the query: `scope["path"]` of ASGI, or SCRIPT_NAME and
            PATH_INFO of WSGI.
        identity: values for the key templates by name, such as {"ip": "203.0.113.9", "user": "ann"} (default none). A
            value is a str, an int or a UUID; None and "" mean that there is no value.
        native: the framework's own request, for functions that compute a cost (default None). Rules do not look at it.
        root: where the application is mounted, `scope["root_path"]` of ASGI or SCRIPT_NAME of WSGI (default "": at the
            top). A path is matched with it and without it, because frameworks find one route by both.

    Example:
        >>> from batchlimit.rules import Request
        >>> Request("POST", "/login", {"ip": "203.0.113.9"}).path
        '/login'
    """

    method: str
    path: str
    identity: Mapping[str, object] = NOTHING
    native: Any = None
    root: str = ""


request_of: Callable[[tuple[str, str, Mapping[str, object], Any, str]], Request] = partial(tuple.__new__, Request)
"""Makes a Request of all its fields, in half the time of a call of the class."""


class Match(NamedTuple):
    """A rule whose pattern matches.

    Attributes:
        rule: the rule.
        parameters: the path parameters of its pattern: {"id": "7"} where "/items/{id}" matched "/items/7".

    Example:
        >>> from batchlimit.rules import Request, Rule, Rules
        >>> rules = Rules([Rule("items", "100/s", key="user:{user}", match="/items/{id}")])
        >>> match, = rules.matching("GET", "/items/7")
        >>> match.rule.name, dict(match.parameters)
        ('items', {'id': '7'})
    """

    rule: "Rule"
    parameters: Mapping[str, str]


class Applied(NamedTuple):
    """A rule that a request is charged to.

    Attributes:
        rule: the rule.
        key: the key in the store. Two rules with one key share its bucket: add up their costs.

    Example:
        >>> from batchlimit.rules import Request, Rule, Rules
        >>> rules = Rules([Rule("items", "100/s", key="user:{user}", match="/items/{id}")])
        >>> rules.applicable(Request("GET", "/items/7", {"user": "ann"})).applied[0].key
        'user:ann'
    """

    rule: "Rule"
    key: str


class Unmade(NamedTuple):
    """A rule that matches, whose key could not be made: the caller decides what becomes of the request.

    Attributes:
        rule: the rule.
        reason: why, for a log.
        error: what the identity raised (default None: it raised nothing).

    Example:
        >>> from batchlimit.rules import Request, Rule, Rules
        >>> rules = Rules([Rule("items", "100/s", key="user:{user}", match="/items/{id}")])
        >>> rules.applicable(Request("GET", "/items/7")).unmade[0].reason
        'there is no {user}'
    """

    rule: "Rule"
    reason: str
    error: Exception | None = None


class Applicable(NamedTuple):
    """All rules that match a request.

    Attributes:
        applied: those with a key, in the order of the rules.
        unmade: those whose key could not be made.

    Example:
        >>> from batchlimit.rules import Request, Rule, Rules
        >>> rules = Rules([Rule("items", "100/s", key="user:{user}", match="/items/{id}")])
        >>> applied, unmade = rules.applicable(Request("GET", "/items/7", {"user": "ann"}))
        >>> len(applied), len(unmade)
        (1, 0)
    """

    applied: tuple[Applied, ...]
    unmade: tuple[Unmade, ...]

    @property
    def without_key(self) -> frozenset[str]:
        """The names of those whose key could not be made."""
        return frozenset([each.rule.name for each in self.unmade])


# Made for each request, and for each of its rules: half the time of a call of the class.
_applied = partial(tuple.__new__, Applied)
_applicable = partial(tuple.__new__, Applicable)


def keyed(
    matching: "Iterable[tuple[tuple[Rule, KeyTemplate], Mapping[str, object]]]", identity: Mapping[str, object]
) -> Applicable:
    """Return rules that match, each with its key by this identity; or with why it has none."""
    applied, unmade = [], []
    for (rule, key), parameters in matching:
        try:
            applied.append(_applied((rule, key.fill(identity, parameters))))
        except Exception as error:  # noqa: BLE001  # the identity is the user's; the caller says what becomes of it
            is_known = isinstance(error, NoKey)
            reason = str(error) if is_known else f"the identity raised {type(error).__name__}"
            unmade.append(Unmade(rule, reason, None if is_known else error))
    return _applicable((tuple(applied), tuple(unmade)))

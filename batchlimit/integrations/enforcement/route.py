"""What routes ask for while the application runs: a rule by its key, at a cost of their own."""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

from batchlimit.base.redaction import shown
from batchlimit.integrations.counters import Faults
from batchlimit.integrations.enforcement.charging import AGAIN
from batchlimit.integrations.enforcement.outcome import Refusal, refuse
from batchlimit.integrations.headers import Fields
from batchlimit.integrations.problem import reduced_capacity
from batchlimit.rules import Applicable, Rule, Rules, RulesError
from batchlimit.rules.key import KeyTemplate
from batchlimit.rules.request import NOTHING, keyed
from batchlimit.rules.rule import Charge, RuleCost, checked

_MARK = "_batchlimit_limits"
_fields, _faults = Fields(), Faults()


class _Limit(NamedTuple):
    key: str
    cost: RuleCost | None = None
    charge: Charge | Sequence[int | str] | None = None


class RouteLimit(_Limit):
    """The limit that one route asks for. Two that are equal are the same limit.

    Args:
        key: the key of a rule with `match=None`, with its fields: "search:{user}". Its values come from the identity,
            and then from the path parameters of the route.
        cost: tokens of a request, or a function of the `rules.Request` (default None: the cost of the rule).
        charge: a function of the response, or statuses such as [401, "5xx"] (default None: the `charge` of the rule).

    Example:
        >>> RouteLimit("search:{user}", cost=2).key
        'search:{user}'
    """

    __slots__ = ()  # a tuple, for its hash: each request of the route is looked up by this

    def __new__(
        cls, key: str, cost: RuleCost | None = None, charge: Charge | Sequence[int | str] | None = None
    ) -> Self:
        """Check what is given, at the route that says it."""
        checked("key", key, None)
        if cost is not None:
            checked("cost", cost, None)
        return super().__new__(cls, key, cost, checked("charge", charge, None))  # type: ignore[arg-type]  # as it was given


def limit_for_route(
    key: str, cost: RuleCost | None, charge: Charge | Sequence[int | str] | None, written: str = "@limited(...)"
) -> RouteLimit:
    """Return what a route asks for; RulesError, if the route stands in the place of the key: how it is `written`."""
    if callable(key):
        remedy = written.replace("...", "'search:{user}'")
        raise RulesError(f"{shown(key)} was taken for the key: write {remedy}", field="key")
    return RouteLimit(key, cost, charge)


def unprotected(key: str, remedy: str) -> Refusal:
    """Return the 503 of a route that asks for a key where no rules are; the log has the remedy, once a minute."""
    _faults.tell(key, "requests of a route are refused, which asks for %r: %s", key, remedy)
    return refuse(_fields, reduced_capacity(), AGAIN)


def mark(function: object, limit: RouteLimit) -> None:
    """Note on a function that it asks for one more limit; `wraps` has copied what the function within it asks for."""
    setattr(function, _MARK, (*marks_of(function), limit))


def marks_of(function: object) -> tuple[RouteLimit, ...]:
    """Return the limits that a function asks for; mostly none."""
    found: tuple[RouteLimit, ...] = getattr(function, _MARK, ())
    return found


def known_of(request: Mapping[str, object], route: Mapping[str, object]) -> Mapping[str, object]:
    """Return values for keys, by what is known of the request, and before that by what its route knows."""
    if route is NOTHING:
        return request
    if request.__class__ is dict and route.__class__ is dict:
        return {**request, **route}
    return ChainMap(route, request)  # type: ignore[arg-type]  # one of them may raise when it is read


class RouteRules:
    """The rules that routes ask for, of all rules. A limit is looked up once."""

    __slots__ = ("_found", "_rules")

    def __init__(self, rules: Rules) -> None:
        self._rules, self._found = rules, dict[RouteLimit, tuple[Rule, KeyTemplate]]()

    def find(self, limit: RouteLimit) -> tuple[Rule, KeyTemplate]:
        """Return the rule of a limit, with the cost and the charge of the limit. Raises RulesError if there is none."""
        if (found := self._found.get(limit)) is None:
            rule = self._rules.asked(limit.key)
            own: dict[str, Any] = {"match": None, "cost": rule.cost if limit.cost is None else limit.cost}
            own["charge"] = rule.charge if limit.charge is None else limit.charge
            found = self._found[limit] = replace(rule, **own), KeyTemplate(rule.key)
        return found

    def applicable(
        self, limit: RouteLimit, identity: Mapping[str, object], parameters: Mapping[str, object]
    ) -> Applicable:
        """Return the rule with its key, or why there is no key. Raises RulesError if there is no rule."""
        return keyed([(self.find(limit), parameters)], identity)

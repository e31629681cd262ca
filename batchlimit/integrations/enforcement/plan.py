"""The bill of one request, by the rules that match it and those that its route asks for by their keys.

What is the same for all requests that the same rules match is looked up once.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple, Self

from batchlimit import Quota
from batchlimit.base.redaction import shown
from batchlimit.integrations.counters import Tally
from batchlimit.integrations.headers import Fields, Header, Prepared
from batchlimit.rules import Rule, Rules, RulesError, Template
from batchlimit.rules.key import KeyTemplate, written
from batchlimit.rules.request import NOTHING
from batchlimit.rules.rule import ChargeSetting, RuleCost, checked

Charged = tuple[Rule, str, int]
"""A rule, the key that it charges, and how many tokens. A plain tuple: to make one of a named type takes 300 ns."""
Left = Mapping[str, tuple[int, Quota | None, int | None]]
"""What remains by key, the quota that holds (None: that of the rule), and which of its bandwidths binds."""
_key, _price = itemgetter(1), itemgetter(1, 2)
"""Of a Charged: its key; its key and cost."""


class Tariff:
    """Rules that are charged together, each at a fixed cost; `tally` counts who is charged to exactly these."""

    __slots__ = ("costs", "is_special", "keys", "numbers", "prepared", "rules", "tally")

    def __init__(self, matching: Sequence[Template], names: Iterable[str], tally: Tally) -> None:
        """`names` are those of the fields in the keys."""
        self.numbers = {name: number for number, name in enumerate(names, 1)}
        self.tally, self.rules = tally, [rule for rule, _, _ in matching]
        self.costs: list[int] = [rule.cost for rule in self.rules]  # type: ignore[misc]  # no function
        self.is_special = any(rule.mode != "enforce" or rule.charge is not None for rule in self.rules)
        keys = "\n".join([rule.key for rule in self.rules])  # none of them has a line break, or a percent sign
        self.keys = keys.replace("{", "%(").replace("}", ")s")
        self.prepared: Prepared | None = None  # what was last told of them


class Bill:
    """Rules with their keys and costs. Requests with the same values in their keys may share one."""

    __slots__ = ("charged", "costs", "keyed", "keys", "prepared", "settled", "tariff", "told")

    def __init__(self, charged: Iterable[Charged], tariff: Tariff | None = None) -> None:
        self.charged = told = tuple(charged)
        self.settled: Sequence[Charged] = ()  # in the end: those that charge by the response
        if tariff is None or tariff.is_special:
            told = tuple([each for each in told if each[0].mode == "enforce"])
            self.settled = [each for each in self.charged if each[0].charge is not None]
        self.told = told  # by the fields: all but those in shadow mode
        self.keys = tuple(map(_key, told))
        self.costs: dict[str, int] = dict(map(_price, self.charged))
        if len(self.costs) < len(self.charged):
            self.costs = {each: sum(cost for _, key, cost in self.charged if key == each) for each in self.costs}
        self.tariff = tariff
        self.prepared: Prepared | None = None if tariff is None else tariff.prepared
        self.keyed: tuple[Prepared, tuple[bytes, bytes]] | None = None  # with what it says of the keys, if that is kept

    def fields(self, left: Left, fields: Fields) -> list[Header]:
        """Return the header fields that tell of it, and of what remains by key."""
        prepared, said = self.keyed or (self.prepared, None)
        if prepared is None or (found := prepared.of(self.keys, left, None, said)) is None:
            rules = [(rule.name, left[key][1] or rule.quota, left[key][2]) for rule, key, _ in self.told]
            self.prepared = prepared = fields.prepare(rules)
            if self.tariff is not None:
                self.tariff.prepared = prepared
            if self.keyed is not None:
                self.keyed = prepared, prepared.keyed(self.keys)
            found = prepared.of(self.keys, left)
        return found or []


NOTHING_CHARGED = Bill(())


Bills = dict[tuple[object, ...], Bill]
"""Bills by what they were made of: the Tally of their rules, and the values in their keys."""
_ABSENT = object()
_MOST = 4096
"""Bills that are remembered."""
_LONGEST = 256
"""Characters of all values in a Bill that is remembered."""


class RequestPlan:
    """The rules that match a request by its path, and where the values in their keys come from.

    Its memory of bills is also that of plans by other tariffs.
    """

    __slots__ = ("_bills", "_values", "tariff")

    def __init__(self, tariff: Tariff, values: Mapping[str, object], bills: Bills) -> None:
        """`values` are the path parameters by the names of the fields."""
        self.tariff, self._values, self._bills = tariff, tuple(values.items()), bills

    def bill(self, identity: Mapping[str, object]) -> Bill:
        """Return what a request is charged. Raises what `KeyTemplate.fill` raises."""
        asked: list[object] = [self.tariff.tally]
        for name, otherwise in self._values:
            asked.append(identity.get(name, otherwise))
        if (found := self._bills.get(tuple(asked))) is not None:
            return found
        tariff = self.tariff
        values = {name: written(asked[number], name) for name, number in tariff.numbers.items()}
        keys = (tariff.keys % values).split("\n")
        return Bill(zip(tariff.rules, keys, tariff.costs), tariff)  # noqa: B905  `strict` takes 100 ns

    def remember(self, bill: Bill, identity: Mapping[str, object]) -> None:
        """Remember a Bill if its values are short texts. Many are forgotten, all at once.

        Only those are worth it that memory paid. Where each request is another user, the garbage collector would have
        to look at thousands of others, again and again.
        """
        of = (self.tariff.tally, *[identity.get(name, otherwise) for name, otherwise in self._values])
        texts = [value for value in of[1:] if value is not _ABSENT]
        if all(value.__class__ is str for value in texts) and sum(map(len, texts)) <= _LONGEST:  # type: ignore[arg-type]
            if len(self._bills) >= _MOST:
                self._bills.clear()
            self._bills[of] = bill
            bill.keyed = (prepared, prepared.keyed(bill.keys)) if (prepared := bill.prepared) else None


EXEMPT = RequestPlan(Tariff((), (), Tally()), {}, {})
"""That of requests that no rule is for."""


class Plans:
    """Makes the plans of one application: one for each path, while the same rules have one Tariff."""

    __slots__ = ("_bills", "_tallies", "_tariffs")

    def __init__(self, tallies: dict[tuple[str, ...], Tally]) -> None:
        """`tallies` count requests by the names of their rules."""
        self._tallies, self._tariffs, self._bills = tallies, dict[tuple[str, ...], Tariff](), Bills()

    def of(self, matching: Sequence[Template]) -> RequestPlan | None:
        """Return the plan of rules that match; None: a cost is not fixed, or a name has two values in the path."""
        values: dict[str, object] = {}
        for rule, key, parameters in matching:
            if not isinstance(rule.cost, int) or not rule.cost:
                return None
            for name in key.fields:
                if values.setdefault(name, value := parameters.get(name, _ABSENT)) != value:
                    return None
        names = tuple(rule.name for rule, _, _ in matching)
        if (tariff := self._tariffs.get(names)) is None:
            tariff = self._tariffs[names] = Tariff(matching, values, self._tallies.setdefault(names, Tally()))
        return RequestPlan(tariff, values, self._bills)


_MARK = "_batchlimit_limits"


class _Limit(NamedTuple):
    key: str
    cost: RuleCost | None = None
    charge: ChargeSetting = None


class RouteLimit(_Limit):
    """The limit that one route asks for. Two that are equal are the same limit.

    Args:
        key: the key of a rule with `match=None`, with its fields: "search:{user}". Its values come from the identity,
            and then from the path parameters of the route.
        cost: tokens of a request, or a function of the `rules.Request` (default None: the cost of the rule).
        charge: a function of the response, or statuses such as [401, "5xx"] (default None: the `charge` of the rule).

    Raises:
        RulesError: an argument cannot work.

    Example:
        >>> RouteLimit("search:{user}", cost=2).key
        'search:{user}'
    """

    __slots__ = ()  # a tuple, for its hash: each request of the route is looked up by this

    def __new__(cls, key: str, cost: RuleCost | None = None, charge: ChargeSetting = None) -> Self:
        """Check what is given, at the route that says it."""
        checked("key", key, None)
        if cost is not None:
            checked("cost", cost, None)
        return super().__new__(cls, key, cost, checked("charge", charge, None))  # type: ignore[arg-type]  # as it was given


def limit_for_route(
    key: str, cost: RuleCost | None, charge: ChargeSetting, written: str = "@limited(...)"
) -> RouteLimit:
    """Return what a route asks for; RulesError, if the route stands in the place of the key: how it is `written`."""
    if callable(key):
        remedy = written.replace("...", "'search:{user}'")
        raise RulesError(f"{shown(key)} was taken for the key: write {remedy}", field="key")
    return RouteLimit(key, cost, charge)


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

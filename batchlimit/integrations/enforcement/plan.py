"""The bill of one request, by the rules that match it and those that its route asks for by their keys."""

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

from batchlimit import Decision, Quota
from batchlimit.base.redaction import shown
from batchlimit.integrations.counters import Tally
from batchlimit.integrations.headers import Fields, Header, Prepared
from batchlimit.rules import Rule, Rules, RulesError, Template
from batchlimit.rules.key import KeyTemplate, written
from batchlimit.rules.request import NOTHING
from batchlimit.rules.rule import ChargeSetting, RuleCost, checked

Charged = tuple[Rule, str, int]
"""A rule, the key that it charges, and how many tokens. A plain tuple: to make one of a named type takes 300 ns."""
Remaining = tuple[int, Quota | None, int | None]
Left = Mapping[str, Remaining]
"""What remains by key, the quota that holds (None: that of the rule), and which of its bandwidths binds."""
_ODD = frozenset(("fallback", "shadow"))
"""Sources of decisions that say more than that a call is admitted."""
_MARK = "_batchlimit_limits"


class Tariff:
    """Rules that are charged together at fixed costs; `tally` counts who is charged to these (None: each by itself)."""

    __slots__ = ("costs", "is_special", "names", "prepared", "rules", "tally", "write")

    def __init__(
        self, rules: Sequence[Rule], costs: Sequence[int], tally: Tally | None = None, names: Sequence[str] = ()
    ) -> None:
        self.rules, self.costs, self.tally, self.names = rules, costs, tally, names
        self.is_special = any(rule.mode != "enforce" or rule.charge is not None for rule in rules)
        keys = "\n".join([rule.key for rule in rules])  # none of them has a line break
        for number, name in enumerate(names):
            keys = keys.replace(f"{{{name}}}", f"{{{number}}}")
        self.write = keys.format  # returns the keys, a line each, of the values by `names`
        self.prepared: Prepared | None = None  # what was last told of them


class Bill:
    """Rules with their keys and costs. Requests with the same values in their keys may share one."""

    __slots__ = ("costs", "keyed", "keys", "settled", "tariff", "told")

    def __init__(self, keys: Sequence[str], tariff: Tariff) -> None:
        self.keys = self.told = keys  # told by the fields: all but those in shadow mode
        self.tariff = tariff
        self.costs: dict[str, int] = dict(zip(keys, tariff.costs))  # noqa: B905  `strict` takes 100 ns
        self.settled: Sequence[Charged] = ()  # in the end: those that charge by the response
        self.keyed: tuple[Prepared, tuple[bytes, bytes]] | None = None  # with what it says of the keys, if that is kept
        if len(self.costs) < len(keys):
            self.costs = {each: sum(cost for _, key, cost in self.charged if key == each) for each in keys}
        if tariff.is_special:
            self.told = [key for rule, key, _ in self.charged if rule.mode == "enforce"]
            self.settled = [each for each in self.charged if each[0].charge is not None]

    @classmethod
    def of(cls, charged: Collection[Charged]) -> Self:
        """Return that of rules whose costs are of this request alone."""
        of_each = Tariff([rule for rule, _, _ in charged], [cost for _, _, cost in charged])
        return cls([key for _, key, _ in charged], of_each)

    @property
    def charged(self) -> Iterable[Charged]:
        """Each rule with its key and cost."""
        return zip(self.tariff.rules, self.keys, self.tariff.costs, strict=True)

    def fields(self, left: Left, fields: Fields) -> list[Header]:
        """Return the header fields that tell of it, and of what remains by key."""
        prepared, said = self.keyed or (self.tariff.prepared, None)
        if prepared is None or (found := prepared.of(self.told, left, None, said)) is None:
            told = [(rule, key) for rule, key, _ in self.charged if rule.mode == "enforce"]
            rules = [(rule.name, left[key][1] or rule.quota, left[key][2]) for rule, key in told]
            prepared = Prepared(rules, fields)
            self.tariff.prepared = prepared
            if self.keyed is not None:
                self.keyed = prepared, prepared.keyed(self.told)
            found = prepared.of(self.told, left)
        return found or []


NOTHING_CHARGED = Bill.of(())


def read_decisions(decisions: dict[str, Decision]) -> tuple[str | None, Left, bool]:
    """Return the key that is short, if there is one; else what remains by key, and whether a source is odd."""
    left: dict[str, Remaining] = {}  # `map` and `attrgetter` would take three times as long for a few keys
    is_odd = False
    for key, each in decisions.items():
        if not each.allowed:
            return key, left, is_odd
        is_odd = is_odd or each.source in _ODD
        left[key] = each.remaining, each.quota, each.binding
    return None, left, is_odd


Bills = dict[tuple[object, ...], Bill]
"""Bills by what they were made of: the values in their keys, and the Tally of their rules."""
_ABSENT = object()
_MOST = 4096
"""Bills that are remembered."""
_LONGEST = 256
"""Characters of all values in a Bill that is remembered."""


class RequestPlan:
    """The rules that match a request by its path, and where the values in their keys come from. Plans share bills."""

    __slots__ = ("_bills", "_values", "tariff")

    def __init__(self, tariff: Tariff, values: Mapping[str, object], bills: Bills) -> None:
        """`values` are the path parameters by the names of the fields."""
        self.tariff, self._values, self._bills = tariff, tuple(values.items()), bills

    def bill(self, identity: Mapping[str, object]) -> Bill:
        """Return what a request is charged. Raises what `KeyTemplate.fill` raises."""
        tariff = self.tariff
        asked: list[object] = []
        for name, otherwise in self._values:
            asked.append(identity.get(name, otherwise))
        asked.append(tariff.tally)
        if (found := self._bills.get(tuple(asked))) is not None:
            return found
        return Bill(tariff.write(*map(written, asked, tariff.names)).split("\n"), tariff)

    def remember(self, bill: Bill, identity: Mapping[str, object]) -> None:
        """Remember a Bill of short texts that memory paid: of users who come once, it would be garbage to collect."""
        of = (*[identity.get(name, otherwise) for name, otherwise in self._values], self.tariff.tally)
        texts = [value for value in of[:-1] if value is not _ABSENT]
        if all(value.__class__ is str for value in texts) and sum(map(len, texts)) <= _LONGEST:  # type: ignore[arg-type]
            if len(self._bills) >= _MOST:
                self._bills.clear()
            self._bills[of] = bill
            bill.keyed = (prepared, prepared.keyed(bill.told)) if (prepared := self.tariff.prepared) else None


EXEMPT = RequestPlan(Tariff((), ()), {}, {})
"""That of requests that no rule is for."""


class Plans:
    """Makes the plan of each path, and knows the rules that routes ask for; the same rules have one Tariff."""

    __slots__ = ("_bills", "_found", "_rules", "_tallies", "_tariffs")

    def __init__(self, rules: Rules, tallies: dict[tuple[str, ...], Tally] | None = None) -> None:
        """`tallies` count requests by the names of their rules (None: nobody reads them)."""
        self._tallies, self._tariffs, self._bills = (
            {} if tallies is None else tallies,
            dict[tuple[str, ...], Tariff](),
            Bills(),
        )
        self._rules, self._found = rules, dict["RouteLimit", tuple[Rule, KeyTemplate]]()

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
            rules, tally = [rule for rule, _, _ in matching], self._tallies.setdefault(names, Tally())
            costs: list[int] = [rule.cost for rule in rules]  # type: ignore[misc]  # no function
            tariff = self._tariffs[names] = Tariff(rules, costs, tally, tuple(values))
        return RequestPlan(tariff, values, self._bills)

    def has(self, limit: "RouteLimit") -> bool:
        """Whether there is the rule of a limit."""
        try:
            return bool(self.find(limit))
        except RulesError:
            return False

    def find(self, limit: "RouteLimit") -> tuple[Rule, KeyTemplate]:
        """Return the rule of a limit, with the cost and the charge of the limit. Raises RulesError if there is none."""
        if (found := self._found.get(limit)) is None:
            rule = self._rules.asked(limit.key)
            own: dict[str, Any] = {"match": None, "cost": rule.cost if limit.cost is None else limit.cost}
            own["charge"] = rule.charge if limit.charge is None else limit.charge
            found = self._found[limit] = replace(rule, **own), KeyTemplate(rule.key)
        return found


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


def no_decorator(what: str, written: str, key: str) -> TypeError:
    """Return the TypeError for `limited` in the place of a decorator: `what` it is instead, and how it is `written`."""
    return TypeError(f"limited {what}, and no decorator: {written.replace('...', repr(key))}")


def mark(function: object, limit: RouteLimit) -> None:
    """Note on a function that it asks for one more limit; `wraps` has copied what the function within it asks for."""
    setattr(function, _MARK, (*marks_of(function), limit))


def marks_of(function: object) -> tuple[RouteLimit, ...]:
    """Return the limits that a function asks for; mostly none."""
    return getattr(function, _MARK, ())


def known_of(request: Mapping[str, object], route: Mapping[str, object]) -> Mapping[str, object]:
    """Return values for keys, by what is known of the request, and before that by what its route knows."""
    if route is NOTHING:
        return request
    if request.__class__ is dict and route.__class__ is dict:
        return {**request, **route}
    return ChainMap(route, request)  # type: ignore[arg-type]  # one of them may raise when it is read

"""The bill of one request, and what of it is looked up once for all requests that the same rules match."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from batchlimit import Quota
from batchlimit.integrations.headers import Prepared, Told
from batchlimit.rules import Rule, Template

Charged = tuple[Rule, str, int]
"""A rule, the key that it charges, and how many tokens. A plain tuple: to make one of a named type takes 300 ns."""
Left = Mapping[str, tuple[int, Quota | None, int | None]]
"""What remains by key, the quota that holds (None: that of the rule), and which of its bandwidths binds."""


class Bill:
    """Rules with their keys and costs. Requests with the same values in their keys may share one."""

    __slots__ = ("charged", "costs", "prepared", "settled", "told")

    def __init__(self, charged: Iterable[Charged]) -> None:
        self.charged = tuple(charged)
        self.told: list[Charged] = []  # by the fields: all but those in shadow mode
        self.settled: list[Charged] = []  # in the end: those that charge by the response
        self.costs: dict[str, int] = {}
        for each in self.charged:
            rule, key, cost = each
            if rule.mode == "enforce":
                self.told.append(each)
            if rule.charge is not None:
                self.settled.append(each)
            self.costs[key] = self.costs.get(key, 0) + cost
        self.prepared: Prepared | None = None

    def telling(self, left: Left) -> list[Told]:
        """Return what the fields tell, by what remains of each key."""
        found: list[Told] = []
        for rule, key, _ in self.told:
            remaining, quota, binding = left[key]
            found.append((rule.name, quota or rule.quota, key, remaining, binding))
        return found


NOTHING_CHARGED = Bill(())


Bills = dict[tuple[object, ...], Bill]
"""Bills by what they were made of: the counter of their rules, and the values in their keys."""
_ABSENT = object()
_MOST = 4096
"""Bills that are remembered."""
_LONGEST = 256
"""Characters of all values in a Bill that is remembered."""


class RequestPlan:
    """The rules that match a request, each of a fixed cost; `hits` counts who is charged to exactly these.

    Its memory of bills is also that of plans whose rules differ if their counters do.
    """

    __slots__ = ("_bills", "_values", "fields", "hits", "rules")

    def __init__(self, rules: Sequence[Template], hits: "count[int]", bills: Bills) -> None:
        self.rules, self.hits, self._bills = rules, hits, bills
        values = [(name, parameters.get(name, _ABSENT)) for _, key, parameters in rules for name in key.fields]
        self._values = tuple(dict.fromkeys(values))
        self.fields = frozenset(name for name, _ in values)

    def bill(self, identity: Mapping[str, object]) -> Bill:
        """Return what a request is charged. Raises what `KeyTemplate.fill` raises."""
        asked: list[object] = [self.hits]
        for name, otherwise in self._values:
            asked.append(identity.get(name, otherwise))
        return self._bills.get(tuple(asked)) or Bill(
            [(rule, key.fill(identity, parameters), rule.cost) for rule, key, parameters in self.rules]  # type: ignore[misc]  # no function
        )

    def remember(self, bill: Bill, identity: Mapping[str, object]) -> None:
        """Remember a Bill if its values are short texts. Many are forgotten, all at once.

        Only those are worth it that memory paid. Where each request is another user, the garbage collector would have
        to look at thousands of others, again and again.
        """
        of = (self.hits, *[identity.get(name, otherwise) for name, otherwise in self._values])
        texts = [value for value in of[1:] if value is not _ABSENT]
        if all(value.__class__ is str for value in texts) and sum(map(len, texts)) <= _LONGEST:  # type: ignore[arg-type]
            if len(self._bills) >= _MOST:
                self._bills.clear()
            self._bills[of] = bill


EXEMPT = RequestPlan((), count(), {})
"""That of requests that no rule is for."""

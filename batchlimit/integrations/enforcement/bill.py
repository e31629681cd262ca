"""The bill of one request: rules, each with its key and its cost."""

from collections.abc import Iterable, Mapping

from batchlimit import Quota
from batchlimit.integrations.headers import Prepared, Told
from batchlimit.rules import Rule

Charged = tuple[Rule, str, int]
"""A rule, the key that it charges, and how many tokens. A plain tuple: to make one of a named type takes 300 ns."""
Left = Mapping[str, tuple[int, Quota | None, int | None]]
"""What remains by key, the quota that holds (None: that of the rule), and which of its bandwidths binds."""


class Bill:
    """Rules with their keys and costs. Requests with the same values in their keys may share one.

    Args:
        charged: the rules.

    Attributes:
        charged: as above.
        costs: tokens by key; rules with one key share its bucket.
        told: those of the rules that the fields tell of: all but those in shadow mode.
        settled: the rules that charge by the response.
        prepared: the fields, but for what is left; None: nobody has written any.

    Example:
        >>> Bill([(Rule("a", "9/s", key="it"), "it", 1), (Rule("b", "9/s", key="it"), "it", 2)]).costs
        {'it': 3}
    """

    __slots__ = ("charged", "costs", "prepared", "settled", "told")

    def __init__(self, charged: Iterable[Charged]) -> None:
        self.charged = tuple(charged)
        self.told = tuple(each for each in self.charged if each[0].mode == "enforce")
        self.settled = tuple(each for each in self.charged if each[0].charge is not None)
        self.costs: dict[str, int] = {}
        for _, key, cost in self.charged:
            self.costs[key] = self.costs.get(key, 0) + cost
        self.prepared: Prepared | None = None

    def __repr__(self) -> str:
        return f"<Bill of {self.costs}>"

    def telling(self, left: Left) -> list[Told]:
        """Return what the fields tell.

        Args:
            left: what remains, by key.
        """
        found = [(rule, key, *left[key]) for rule, key, _ in self.told]
        return [(rule.name, quota or rule.quota, key, remaining, bind) for rule, key, remaining, quota, bind in found]


NOTHING_CHARGED = Bill(())

"""The policies of a limiter: the entries of its quotas, by which its keys are counted."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from batchlimit.quota.quota import Quota

MOST = 200
"""Entries that are counted each for itself; all others together are OTHER."""
EVERY = "*"
"""The one policy of a limiter with one quota for all keys, or with a function."""
OTHER = "other"
NOTHING: Mapping[str, Quota] = MappingProxyType({})


class _Numbers(dict[int, int]):
    """Numbers of policies by the identity of their quotas; of any other quota the last one."""

    last = 0

    def __missing__(self, _identity: int) -> int:
        return self.last


class Policies:
    """Which policy a key went by, as its quota tells: each entry of a mapping has a Quota of its own, by identity.

    So a key entry need not know its policy, and no key is looked up twice.

    Attributes:
        names: of all policies; the number of a policy is its place.
        numbers: by the `id` of a quota, as it stands in the code.
    """

    __slots__ = ("_before", "names", "numbers")

    def __init__(self, quotas: Mapping[str, Quota] | None = None, before: Mapping[str, Quota] = NOTHING) -> None:
        """Number the policies.

        Args:
            quotas: those of a mapping, no two of them the same object (default None: one policy for all).
            before: what stood under some of these names before: keys may still go by that (default: nothing).
        """
        known: Iterable[tuple[str, Quota]] = list(quotas.items())[:MOST] if quotas is not None else ()
        self.names = (*(name for name, _ in known), EVERY if quotas is None else OTHER)
        self.numbers = _Numbers({id(quota): number for number, (_, quota) in enumerate(known)})
        self.numbers.last = len(self.numbers)
        number = {name: number for number, name in enumerate(self.names)}
        self.numbers.update({id(quota): number[name] for name, quota in before.items() if name in number})
        self._before = before  # no other quota may get the identity of one of these

    def __repr__(self) -> str:
        return f"<Policies {', '.join(self.names)}>"

    def number(self, quota: Quota) -> int:
        """Return the number of the policy that has this quota in the code."""
        return self.numbers[id(quota)]


def policies_of(rule: Callable[[str], Quota]) -> Policies:
    """Return the policies of what `quota_rule` returned; of any other function: one for all keys."""
    found = getattr(rule, "policies", None)
    return found if isinstance(found, Policies) else Policies()

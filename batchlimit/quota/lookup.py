"""The quota of a key: one for all keys, one by name or pattern, or one that a function returns; and its policy."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from batchlimit.base.key import by_name, none_for
from batchlimit.base.redaction import shown
from batchlimit.quota.quota import Quota

MOST = 200
"""Entries that are counted each for itself; all others together are OTHER."""
EVERY = "*"
"""The one policy of a limiter with one quota for all keys, or with a function."""
OTHER = "other"
NOTHING: Mapping[str, Quota] = MappingProxyType({})


class Policies(dict[int, int]):
    """Which policy a key went by, as its quota tells: each entry of a mapping has a Quota of its own, by identity."""

    __slots__ = ("_before", "names")

    def __init__(self, quotas: Mapping[str, Quota] | None = None, before: Mapping[str, Quota] = NOTHING) -> None:
        """Number the policies of these quotas; keys may still go by what stood under some of their names `before`."""
        known = [] if quotas is None else [each for each in list(quotas.items())[:MOST] if each[0] != OTHER]
        self.names = (*(name for name, _ in known), EVERY if quotas is None else OTHER)
        super().__init__({id(quota): number for number, (_, quota) in enumerate(known)})
        number = {name: number for number, name in enumerate(self.names)}
        self.update({id(quota): number[name] for name, quota in before.items() if name in number})
        self._before = before  # no other quota may get the identity of one of these

    def number(self, quota: Quota) -> int:
        """Return the number of the policy that has this quota in the code."""
        return self.get(id(quota), len(self.names) - 1)


def policies_of(rule: Callable[[str], Quota]) -> Policies:
    """Return the policies of what `quota_rule` returned; of any other function: one for all keys."""
    found = getattr(rule, "policies", None)
    return found if isinstance(found, Policies) else Policies()


QuotaSource = Quota | str | Mapping[str, Quota | str] | Callable[[str], Quota | str]


FEWEST = 10_000
"""The fewest keys for which the first answer of a function is remembered; they take 1 MB."""


def quota_rule(source: QuotaSource, most: int = FEWEST) -> Callable[[str], Quota]:
    """Return what finds a key's quota (ValueError: none); first answers of a function stay, of `most` keys at least."""
    if isinstance(source, Quota | str):
        quota = Quota.parse(source) if isinstance(source, str) else source
        return lambda _key: quota
    if isinstance(source, Mapping):
        if not source:
            raise ValueError('a mapping of quotas needs an entry; "*" stands for every key')
        # Each entry gets an equal one that nobody else has.
        quotas = {name: replace(_as_quota(value, shown(name))) for name, value in source.items()}
        find: Any = by_name(quotas, partial(none_for, "quota"))
        find.policies = Policies(quotas)
        return find  # type: ignore[no-any-return]
    if callable(source):
        return Constant(lambda key: _as_quota(source(key), f"key {shown(key)}"), most)
    wanted = "quotas come from a Quota, its text such as '100/s', a mapping or a function of the key"
    raise TypeError(f"{wanted}, not from {shown(source)}{_joined(source)}")


class Constant:
    """A function of the key whose first answer stays: a change would reach some of the processes and keys alone."""

    __slots__ = ("_find", "_most", "_new", "_old")

    def __init__(self, find: Callable[[str], Quota], most: int) -> None:
        self._find, self._most = find, max(most, FEWEST)
        # By the key's hash: 64 bits, of which nobody outside knows the seed. A key may be longer than all the rest.
        self._new: dict[int, Quota] = {}
        self._old: dict[int, Quota] = {}

    def __call__(self, key: str) -> Quota:
        """Return the first answer of the function; if it raises, so does this, and the next call asks again."""
        name = hash(key)
        if (known := self._new.get(name)) is not None:
            return known
        known = self._old.get(name) or self._find(key)
        if len(self._new) >= self._most:
            self._old, self._new = self._new, {}
        return self._new.setdefault(name, known)  # of threads that ask at once, all get the same


def _as_quota(value: object, whose: str) -> Quota:
    if isinstance(value, Quota):
        return value
    if not isinstance(value, str):
        raise TypeError(f"the quota of {whose} must be a Quota or its text, not {shown(value)}{_joined(value)}")
    try:
        return Quota.parse(value)
    except ValueError as error:
        raise ValueError(f"{error} (the quota of {whose})") from None


def _joined(value: object) -> str:
    """Say what to do with several quotas, if it is several."""
    several = isinstance(value, list | tuple | set | frozenset)
    return ": join several by ';' in one text, as '100/s; 1000/h', or by '&'" if several else ""

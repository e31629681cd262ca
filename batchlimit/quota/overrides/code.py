"""What the code of a limiter says of its keys, where no operator has set anything else; a file may replace it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from batchlimit.base.key import by_name, none_for, stored
from batchlimit.base.redaction import shown
from batchlimit.quota.failure_policy import FailurePolicy, FailureSource, failure_rule
from batchlimit.quota.lookup import Policies, QuotaSource, policies_of, quota_rule
from batchlimit.quota.overrides.override import KeyRule, Mode, ModeSource, mode_rule
from batchlimit.quota.quota import Quota


class Rank(NamedTuple):
    """Which of two quotas of code a bucket obeys: that of the higher revision, and of equal ones the younger."""

    revision: int
    since: float
    """When it was set (seconds, by the clock of the instance)."""


class CodeLimit(NamedTuple):
    """What a file says of the keys of one name or pattern."""

    quota: Quota  # what each key may spend
    on_failure: FailurePolicy | None = None  # while the store is away; None: as of the limiter
    mode: Mode | None = None  # what becomes of the decisions; None: as of the limiter


class CodeLimits(NamedTuple):
    """What a file says of all keys."""

    by_name: Mapping[str, CodeLimit]  # what it says of each name or pattern
    revision: int | None = None  # its number; None: that of the limiter


class CodeFile:
    """A file of limits; rules/file.py has the one that there is.

    What goes by it has a method `obey`, which gets what it says. Rules before a web application have a `review` too,
    which raises ValueError for what they cannot go by; then nobody does.
    """

    failures: int  # how often it was refused

    @property
    def limits(self) -> CodeLimits:
        """What it says of keys."""
        raise NotImplementedError

    def lead(self, follower: Any) -> None:
        """Tell a follower what the file says, now and each time that it changes."""
        raise NotImplementedError


CodeSource = QuotaSource | CodeFile
Rule = Callable[[str], Quota]


def rule_of(source: CodeSource, most: int = 0) -> Rule | CodeFile:
    """Return the function from a key to its quota, or the file that says it. Raises as `quota_rule`."""
    return source if isinstance(source, CodeFile) else quota_rule(source, most)


class Code:
    """What holds for each key by the code: quota (ValueError: none), failure policy, mode. It never changes."""

    __slots__ = ("is_enforced", "mode", "named", "policies", "policy", "quota", "rank")

    def __init__(self, quota: Rule, on_failure: FailureSource, mode: ModeSource, rank: Rank) -> None:
        self.quota, self.rank = quota, rank
        self.policy, self.mode = failure_rule(on_failure), mode_rule(mode)
        self.is_enforced = all(each == "enforce" for each in (mode.values() if isinstance(mode, Mapping) else [mode]))
        self.policies = policies_of(quota)  # by which keys are counted
        self.named: _Named | None = None

    def by_file(self, limits: CodeLimits, before: "Code", now: float) -> "Code":
        """Return what holds by a file now. A name that it no longer has keeps its last quota where no other matches."""
        named = _Named(limits.by_name, before.named)
        revision = self.rank.revision if limits.revision is None else limits.revision
        made = Code(named, "closed", "enforce", Rank(revision, now))
        made.policy = lambda key: named.limit(key).on_failure or self.policy(key)
        made.mode = lambda key: named.limit(key).mode or self.mode(key)
        modes = {limit.mode for limit in (*named.now.values(), *named.gone.values())}
        made.is_enforced = self.is_enforced and modes <= {None, "enforce"}
        made.named = named
        return made

    def rule(self, key: str) -> KeyRule:
        """Return what holds for a key, but for its failure policy."""
        return KeyRule(self.quota(key), self.mode(key))


def unsaid(key: str) -> Quota:
    """Return no quota: a file is to say it."""
    raise ValueError(f"no quota for key {shown(key)}: no file was read")


class _Named:
    """Limits by name; and those of names that were there before and are gone."""

    __slots__ = ("_find", "_find_gone", "gone", "now", "policies")

    def __init__(self, limits: Mapping[str, CodeLimit], before: "_Named | None") -> None:
        then: dict[str, CodeLimit] = {} if before is None else before.now
        self.now: dict[str, CodeLimit] = {}
        for name, limit in limits.items():  # each with a Quota that no other name has: that of before, if it is equal
            before_it = then.get(name)
            is_same = before_it is not None and before_it.quota == limit.quota
            self.now[name] = limit._replace(quota=before_it.quota if before_it and is_same else replace(limit.quota))
        known: dict[str, CodeLimit] = {} if before is None else {**before.gone, **then}
        self.gone: dict[str, CodeLimit] = {name: limit for name, limit in known.items() if name not in self.now}
        self._find, self._find_gone = by_name(self.now), by_name(self.gone)
        quotas = {name: limit.quota for name, limit in {**self.now, **self.gone}.items()}
        self.policies = Policies(quotas, {name: limit.quota for name, limit in then.items()})

    def limit(self, key: str) -> CodeLimit:
        """Return what holds for a key; ValueError: nothing."""
        name = stored(key)
        return self._find(name) or self._find_gone(name) or none_for("quota", key)

    def __call__(self, key: str) -> Quota:
        """Return the quota of a key."""
        return self.limit(key).quota

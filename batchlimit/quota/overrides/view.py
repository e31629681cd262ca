"""Which quota counts for a key in this process, and why: for people."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from batchlimit.base.redaction import escaped
from batchlimit.quota.key import check_key, stored
from batchlimit.quota.lookup import Constant
from batchlimit.quota.overrides.code import CodeFile
from batchlimit.quota.overrides.known import OverridesCache
from batchlimit.quota.overrides.override import Override
from batchlimit.quota.quota import Quota


class QuotaExplanation(NamedTuple):
    """Which quota counts for a key.

    Attributes:
        key: the key.
        quota: the quota that counts; where the override is "open", it would count without that.
        code: the quota that the limiter was made with; None if it is not known, or has none for this key.
        override: the override that counts instead; None: the code counts.
        trial: the override on trial beside it (default None).

    Example:
        >>> from batchlimit import RateLimiter
        >>> print(RateLimiter.from_url("memory://", "100/s").rules.explain("ann"))
        ann: 100/s, by the code
    """

    key: str
    quota: Quota | None
    code: Quota | None
    override: Override | None
    trial: Override | None = None

    def __str__(self) -> str:
        return self._counts() + (f"; beside it the {self.trial.said} of {self.trial.name}" if self.trial else "")

    def _counts(self) -> str:
        key = escaped(self.key)
        if self.override is None:
            return f"{key}: {self.quota or 'no quota'}, by the code"
        one = self.override
        by = f" by {one.who}" if one.who else ""
        why = f": {one.why}" if one.why else ""
        code = f" instead of {self.code}" if self.code else ""
        if one.quota is None and one.mode == "enforce":
            code = f" beside {self.code}" if self.code else ""
        return f"{key}: {one.said}{code}, by the override of {one.name}{ending(one)}, set{by}{why}"


class LimiterRules:
    """The overrides that a limiter knows, and what they mean for its keys.

    Attributes of `limiter.rules`; a limiter learns of a change with its next request to the store.

    Attributes:
        file: the RuleFile that says the quotas of the code; None: the code does.

    Example:
        >>> from batchlimit import RateLimiter
        >>> RateLimiter.from_url("memory://", "100/s").rules.revision
        0
    """

    def __init__(self, known: OverridesCache, rule: Callable[[str], Quota], file: CodeFile | None = None) -> None:
        self._known, self._rule, self.file = known, rule, file

    def __repr__(self) -> str:
        return f"<LimiterRules: {self._known!r}>"

    @property
    def revision(self) -> int:
        """The revision that this limiter goes by; 0: nobody has set an override, or it has not heard of one yet."""
        return self._known.revision

    @property
    def overrides(self) -> tuple[Override, ...]:
        """All overrides at that revision, those among them that have ended."""
        return tuple(self._known.in_force.overrides)

    @property
    def failures(self) -> int:
        """How often the overrides in the store were damaged, gone or of a later version; those known before stayed."""
        return self._known.trouble.count

    def explain(self, key: str) -> QuotaExplanation:
        """Say which quota counts for a key.

        Args:
            key: what is limited.

        Returns:
            The QuotaExplanation; `str` makes a line of it.

        Raises:
            ValueError, TypeError: the key is empty or no str, or the code has no quota for it.
        """
        in_force, code = self._known.in_force, self._rule(check_key(key))
        override = in_force.overrides.find(stored(key), in_force.as_of)
        trial = in_force.overrides.trial(stored(key), in_force.as_of)
        return QuotaExplanation(key, (override and override.quota) or code, code, override, trial)

    def stated(self, key: str) -> Quota | None:
        """Return what the code says of a key in so many words, by one quota for all, a mapping or a file.

        Args:
            key: what is limited.

        Returns:
            The quota; None: a function of the user's own returns it, which is not called here.

        Raises:
            ValueError, TypeError: the key is empty or no str, or the code has no quota for it.

        Example:
            >>> from batchlimit import RateLimiter
            >>> RateLimiter.from_url("memory://", {"user:*": "100/s"}).rules.stated("user:ann").burst
            100
        """
        return None if isinstance(self._rule, Constant) else self._rule(check_key(key))


def ending(one: Override) -> str:
    """Return when an override ends, and what it covers, as people write it; "": it does not end."""
    then = "" if one.covered is None else f", then {one.covered.said}"
    return "" if one.until is None else f" until {spelled(one.until)}{then}"


def spelled(instant: float) -> str:
    """Return an instant (seconds since 1970) as people write it."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

"""The overrides that one limiter instance knows, when it reads them again, and which quota counts for a key by them."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from batchlimit.base.key import check_key, stored
from batchlimit.base.redaction import escaped
from batchlimit.quota.lookup import Constant
from batchlimit.quota.overrides.code import CodeFile
from batchlimit.quota.overrides.override import Lost, NotUnderstood, Override
from batchlimit.quota.overrides.overrides import NONE, InForce, Overrides
from batchlimit.quota.quota import Quota

EVERY = 0.5
"""Seconds between two answers that tell one instance the revision: for a script it is a twentieth of its work."""
REFRESH = 1.0
"""Where buckets cannot tell the revision, as in a cluster: seconds between two looks, as long as anything is asked."""
_LONGEST = 10.0
"""Seconds after which nobody reads any more who began."""
UNTOLD = -1
"""What such a bucket tells."""


class Published(NamedTuple):
    """What a store says of the overrides."""

    revision: int  # of the hash; 0: there is none
    now: float  # the server's clock (seconds since 1970)
    fields: Mapping[str, str] | None  # of the hash; None: the revision is the one that the caller knows


class OverridesCache:
    """The overrides that an instance goes by, until it has read those of another revision.

    `hear` compares the revision in answers, and calls `on_news` once for another one. Then the API reads the hash, and
    calls `learn` or `fail`. Instants are of the instance's clock, unless said to be the server's.
    """

    __slots__ = (
        "_clock", "_looking_until", "_looks_after", "_offset", "_on_news", "_problem", "_understood", "_useless",
        "failures", "in_force", "looks_at",
    )  # fmt: skip

    def __init__(self, clock: Callable[[], float], on_news: Callable[[], None]) -> None:
        self._clock, self._on_news = clock, on_news
        self.in_force = NONE
        self.failures, self._problem = 0, ""  # how often they could not be understood, and why now
        self._looking_until = -math.inf  # somebody reads, or was interrupted before
        self.looks_at = -math.inf  # no answer needs to tell the revision before
        self._useless: int | None = None  # a revision that was told, and not found when it was looked for
        self._looks_after = -math.inf
        self._understood: int | None = 0  # the revision that was read last; None: what was read made no sense
        self._offset = 0.0  # of the server's clock

    def __repr__(self) -> str:
        return f"<OverridesCache: {self.in_force.overrides!r}>"

    @property
    def revision(self) -> int:
        """The revision that is known."""
        return self.in_force.overrides.revision

    def hear(self, told: int, now: float) -> None:
        """Compare what an answer told; most answers tell what is known."""
        self.looks_at = now + EVERY
        if told == self._understood or now < self._looking_until:
            return
        if told not in (UNTOLD, self._useless) or now >= self._looks_after:
            self._useless, self._looking_until = told, now + _LONGEST
            self._on_news()

    def learn(self, published: Published, sent: float) -> None:
        """Take in what was read, by a request that left at `sent`; raises NotUnderstood, and keeps what was known."""
        self._done()
        if published.fields is None:
            self.expire()
            return
        self._understood = None
        if not (published.fields or self.in_force.overrides):  # none was set any more, so none is lost
            self._understood = 0
            return
        if not published.fields:
            raise Lost("the store has lost them")
        overrides = Overrides.read(published.fields)
        self._problem = ""
        self._understood, self._offset = overrides.revision, published.now - sent
        self.in_force = InForce.at(overrides, published.now, self._offset)

    def fail(self, error: Exception) -> bool:
        """Take note that nothing could be read, or not understood; return whether that is news for people."""
        self._done()
        if not isinstance(error, NotUnderstood) or str(error) == self._problem:
            return False
        self.failures, self._problem = self.failures + 1, str(error)
        return True

    def after_fork(self) -> None:
        """In the child: whoever was reading is the parent's."""
        self._looking_until = -math.inf

    def _done(self) -> None:
        self._looking_until = -math.inf
        self._looks_after = self._clock() + REFRESH

    def expire(self) -> bool:
        """Let overrides end that are over; return whether there are some."""
        now, in_force = self._clock() + self._offset, self.in_force
        if in_force is NONE or in_force.overrides.edition(now) == in_force.edition:
            return False
        self.in_force = InForce.at(in_force.overrides, now, self._offset)
        return True

    @property
    def next_end(self) -> float:
        """The instant at which the next override ends; inf: none does."""
        return self.in_force.overrides.next_end(self.in_force.as_of) - self._offset


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
        key, one = escaped(self.key), self.override
        trial = f"; beside it the {self.trial.said} of {self.trial.name}" if self.trial else ""
        if one is None:
            return f"{key}: {self.quota or 'no quota'}, by the code{trial}"
        by, why = f" by {one.who}" if one.who else "", f": {one.why}" if one.why else ""
        how = "beside" if one.quota is None and one.mode == "enforce" else "instead of"
        code = f" {how} {self.code}" if self.code else ""
        return f"{key}: {one.said}{code}, by the override of {one.name}{ending(one)}, set{by}{why}{trial}"


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
        return self._known.failures

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

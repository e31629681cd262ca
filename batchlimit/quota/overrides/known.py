"""The overrides that one limiter instance knows, and when it reads them again. It reads no clock and asks no store."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from batchlimit.quota.overrides.override import Lost, NotUnderstood
from batchlimit.quota.overrides.overrides import NONE, InForce, Overrides

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


class Trouble:
    """Faults of the overrides in the store: each is logged once, and counted."""

    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.count, self.last = 0, ""

    def is_news(self, error: Exception) -> bool:
        """Count an error that is not the last one again."""
        if (told := str(error)) == self.last:
            return False
        self.count, self.last = self.count + 1, told
        return True


class OverridesCache:
    """The overrides that an instance goes by, until it has read those of another revision.

    Answers of the store give the revision, and `hear` compares it. It calls `on_news` once if the revision is another
    one, or if an answer gives none and the last look is a while ago. Then the API reads the hash and calls `learn` or
    `fail`. Until then the known overrides stay in force. Instants are of the instance's clock, unless said to be the
    server's.
    """

    __slots__ = (
        "_clock", "_looking_until", "_looks_after", "_offset", "_on_news", "_understood", "_useless", "in_force",
        "looks_at", "trouble",
    )  # fmt: skip

    def __init__(self, clock: Callable[[], float], on_news: Callable[[], None]) -> None:
        self._clock, self._on_news = clock, on_news
        self.in_force, self.trouble = NONE, Trouble()
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
        self.trouble.last = ""
        self._understood, self._offset = overrides.revision, published.now - sent
        self.in_force = InForce.at(overrides, published.now, self._offset)

    def fail(self, error: Exception) -> bool:
        """Take note that nothing could be read, or not understood; return whether that is news for people."""
        self._done()
        return isinstance(error, NotUnderstood) and self.trouble.is_news(error)

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

"""The free tokens of a key: any caller may spend them, and a hit takes one without a lock."""

import sys
from itertools import islice, repeat
from operator import length_hint

from batchlimit.base.waiting import LONG_AGO

NO_TOKENS: "repeat[float]" = repeat(LONG_AGO, 0)
"""Where no token is laid out."""
_IS_ATOMIC = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether a step of an iterator written in C is one to all threads: so it is under the GIL, and not without."""
MOST = 4096 if _IS_ATOMIC else 0
"""How many tokens are laid out at a time: to take them all back takes 4 ns each, in which nobody else runs."""
_PART = 8
"""A caller who needs several takes an eighth of what is laid out, or more: the next such caller finds them loose."""
ONE: object = 1 if MOST else object()
"""The usual cost, by identity: True and 1.0 equal it as well, and are errors. Nothing, where none is laid out."""


class FreeTokens:
    """Tokens that any caller may spend. Most are laid out in `lock_free`; the others are loose, and counted in `free`.

    `lock_free` is an iterator. Each step of it is one token, and the value of the step is the end of its lease. No two
    threads get the same step, so a hit needs no lock. A lock and a subtraction took 200 ns, or 20 times as long for 64
    threads when a thread lost the GIL in between. A step takes 10 ns. All else requires the API's lock: loose tokens
    are spent there, and laid-out tokens are taken back by the same steps before they are given to anyone else.

    While tokens move from one place to another `is_moving` says so: a sum that is made without the lock is wrong then.

    Nothing counts a hit. `came` counts the tokens that came here to be spent, less those that left unspent: what of
    them is not here any more was spent.
    """

    __slots__ = (
        "_singly", "came", "denied_until", "expires", "free", "is_moving", "lock_free", "low_watermark", "refused",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.lock_free, self.free = NO_TOKENS, 0
        self.came = self.refused = 0
        self.denied_until = LONG_AGO  # before it a call of cost 1 is refused without a lock
        self.low_watermark = 0  # with fewer tokens than this a hit becomes a miss, so that more are fetched in time
        self.expires = now
        self.is_moving = False  # an interrupt during a move leaves it True until the next move ends
        self._singly = False  # whether the last caller of `take` took one

    def take(self, cost: int) -> float:
        """Spend `cost` tokens and return the instant before which that counts; -inf if there are too few.

        The caller reads its clock after this and is admitted if it reads less: a process that was stopped past its
        lease finds out at the moment of spending.
        """
        ready, missing = length_hint(self.lock_free), cost + self.low_watermark - self.free
        if missing > ready:
            return LONG_AGO
        if missing > 0:
            self._pick_up(max(missing, ready // _PART if cost > 1 else 0))
        left = self.free - cost
        if left < self.low_watermark:  # others were faster
            return LONG_AGO
        self.free, self._singly = left, cost == 1
        if self._singly:
            self._lay_out()
        return self.expires

    def has(self, cost: int, now: float) -> bool:
        """Whether so many are here to be spent, and none of the last ones below the low watermark is among them."""
        return now < self.expires and self.free + length_hint(self.lock_free) >= cost + self.low_watermark

    def took_late(self, cost: int) -> None:
        """Uncount tokens that were taken too late to be spent."""
        self.came -= cost

    @property
    def available(self) -> int:
        """The tokens that any caller may spend now."""
        return self.free if self.lock_free is NO_TOKENS else self.free + length_hint(self.lock_free)

    @property
    def spent(self) -> int:
        """Tokens that were spent up to this moment."""
        return self.came - self.available

    @property
    def uses(self) -> int:
        """A figure that changes with each use of the key; without the lock it may miss a use that happens now."""
        return self.spent + self.refused

    # A signal handler may raise between any two lines here. So tokens leave one place before they enter another: an
    # interrupt loses some, and makes none.

    def reclaim(self) -> int:
        """Take back what is laid out: from here on nobody spends any without the lock. Return how many are here."""
        if self.lock_free is not NO_TOKENS:
            self._pick_up(MOST)
            self.lock_free = NO_TOKENS
        return self.free

    def add(self, tokens: int) -> None:
        """Take in so many; where they are less than 0, let so many of the loose ones go, unspent."""
        self.is_moving = True
        self.came += tokens
        self.free += tokens
        self.is_moving = False

    def set_low_watermark(self, low: int) -> None:
        """Set the low watermark; lay out the tokens above it, if callers take them one by one."""
        self.reclaim()
        self.low_watermark = low
        if self._singly:
            self._lay_out()

    def disown(self) -> None:
        """Let nobody spend here any more; tokens that come back later are lost."""
        self.lock_free, self.denied_until, self.expires = NO_TOKENS, LONG_AGO, LONG_AGO

    def _lay_out(self) -> None:
        """Lay out loose tokens, down to the watermark: callers of cost 1 spend those without the lock."""
        if self.free > self.low_watermark and MOST:
            self.reclaim()
            tokens = min(MOST, self.free - self.low_watermark)
            self.is_moving = True
            self.free -= tokens
            self.lock_free = repeat(self.expires, tokens)
            self.is_moving = False

    def _pick_up(self, tokens: int) -> None:
        """Take back so many, or all. A thread that steps at the same time gets others."""
        self.is_moving = True
        self.free += len(list(islice(self.lock_free, tokens)))
        self.is_moving = False

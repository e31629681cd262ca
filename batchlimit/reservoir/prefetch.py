"""The low watermark: below it more tokens are fetched in the background, so that no caller waits for them."""

import math

from batchlimit.base.waiting import NO_WAIT
from batchlimit.reservoir.key_state import KeyState

_ROUND_TRIPS = 1.5
"""A prefetch leaves when what is left lasts this many round trips: one to travel, half a one for a surge."""
_BRIEF = 0.002
"""Seconds. Tokens that are spent faster have no low watermark: the background thread would not run in that time. It
would be woken in vain, and a caller would ask for itself: with eight threads that took a sixth of the throughput."""
_LONG = 0.05
"""Seconds. Tokens that are spent faster are not checked: a refill 4 ms early would make a tenth more requests."""
_MANY = 256
"""Fewer tokens than this are not checked either: four checks take 60 us of work. Where calls are rare, the last check
comes too late by chance for a third of all batches."""
_SOON = 0.004
"""Seconds. A check that expects the low watermark to be reached sooner starts a refill. A thread wakes up within
0.1 ms, or within 5 ms where another thread computes."""
_EARLY = 0.003
"""Seconds before the low watermark is expected to be reached: the latest time of the next check."""
_PART = 0.25
"""The next check comes when this part of the expected time is left, if that is earlier."""


def low_mark(tokens: int, demand: float, round_trip: float) -> int:
    """Return how few of `tokens` are few, where so many are asked for a second and an answer takes so many seconds.

    One more than that, for whoever comes just then, but half of them at the most; 0: callers may run dry.
    """
    if tokens < _BRIEF * demand or not demand * round_trip:
        return 0
    return min(math.ceil(demand * round_trip * _ROUND_TRIPS) + 1, tokens // 2)


def first_look(tokens: int, low: int, demand: float) -> float:
    """Return in how many seconds to look at tokens that just came; inf: callers may come upon the mark."""
    is_worth_it = tokens >= _MANY and tokens - low >= _LONG * demand
    return next_look(tokens - low, demand) if is_worth_it else math.inf


def next_look(spare: int, demand: float) -> float:
    """Return in how many seconds to look again at tokens of which so many are above the mark; 0.0: fetch more."""
    if not demand:
        return math.inf
    lasts = spare / demand
    return lasts - max(_EARLY, _PART * lasts) if lasts > _SOON else 0.0


class Prefetch:
    """Fetches more tokens in the background before those that are here run out.

    `checks_at` is when `tend` looks at the number of tokens again (inf: not at all), and renews them if it is time to.
    `wants_refill` says that a caller found fewer than `tokens.low_watermark`: the next `tend` asks for more.
    """

    __slots__ = ("_state", "checks_at", "wants_refill")

    def __init__(self, state: KeyState) -> None:
        self._state = state
        self.wants_refill = False
        self.checks_at = math.inf

    def set_watermark(self, now: float) -> None:
        """After a grant: set the low watermark, and when to check it."""
        state = self._state
        demand, tokens = state.demand.rate, state.tokens.available
        low = 0 if state.denials.dry_for(1, now) else low_mark(tokens, demand, state.view.round_trip)
        state.tokens.set_low_watermark(low)
        self.checks_at = now + first_look(tokens, low, demand) if low else math.inf

    def check_watermark(self, now: float) -> None:
        """Set the next check: now, if it is time to fetch more, shortly before callers come upon the watermark."""
        tokens = self._state.tokens
        if not tokens.low_watermark:
            self.checks_at = math.inf  # the tokens expired or were given back, or a caller came upon the watermark
        elif now >= self.checks_at:
            self.checks_at = now + next_look(tokens.available - tokens.low_watermark, self._state.demand.rate)

    def want_refill(self) -> None:
        """Fewer tokens are here than the low watermark: from now on they may be spent, and more are wanted."""
        self._state.tokens.low_watermark, self.wants_refill = 0, True

    def take_low(self, cost: int) -> float:
        """Spend some of the last tokens and want a refill; as `FreeTokens.take`, after that found too few.

        One caller of each lease reaches the low watermark, and does not wait. By way of the queue it took 200 us:
        after a thousand hits none of that code is in the processor's cache.
        """
        state, tokens = self._state, self._state.tokens
        if not tokens.low_watermark or cost > tokens.available or state.queue or state.in_flight is not None:
            return NO_WAIT
        self.want_refill()
        return tokens.take(cost)

    def stop(self) -> None:
        """A request is sent, so nothing is wanted or checked until its answer."""
        self._state.tokens.low_watermark, self.checks_at, self.wants_refill = 0, math.inf, False

"""The low mark: with how few tokens more are fetched, and when to look, so that no caller comes upon it."""

import math

_ROUND_TRIPS = 1.5
"""A prefetch leaves when what is left lasts this many round trips: one to travel, half a one for a surge."""
_BRIEF = 0.002
"""What is gone within this time (s) has no mark: callers leave the interpreter to nobody for as long. Who came upon the
mark woke a thread in vain, and asked for itself when all was gone: a sixth of what eight threads get done."""
_LONG = 0.05
"""What is gone within this time (s) is not looked after: fetched 4 ms early it would be fetched a tenth more often."""
_MANY = 256
"""Nor are fewer tokens than this: four looks take 60 us of work, and where calls are rare chance makes the last one too
late, for a third of all batches."""
_SOON = 0.004
"""Who sees that callers will be at the mark within this time (s) fetches: to wake up takes 0.1 ms, and 5 ms at the
worst, where a thread that computes has the interpreter."""
_EARLY = 0.003
"""So long (s) before callers would be at the mark, if they came as before, somebody looks, at the latest."""
_PART = 0.25
"""And the earlier the less is known: when this part of the time is left."""


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

"""How long calls are held back by what upstream says is left, so that its 429 does not come."""

from collections.abc import Mapping

from batchlimit.integrations.told import Allowance

LOW, ENOUGH = 0.2, 0.4
"""Below this part of a limit calls are held back, until as much of it is there again,"""
LOW_CALLS, LOW_SECONDS = 5.0, 0.2
"""but of a limit of requests below so many, or what it refills in so many seconds, until there is twice that."""
RESERVE = 0.02
"""This part of a window's limit is left: strangers, and calls that are under way, spend it."""
LEAST = 0.02
"""A shorter pause (s) costs more than it keeps back."""


def pause_of(kind: str, left: Allowance) -> float:
    """Return for how many seconds nothing more is to be sent.

    Of a window, calls are held back to where the limit would be if it were spent evenly: whatever strangers spend then
    is not ours. Of what refills, calls are held back where little is left. Where nobody knows, little is spread.
    """
    remaining, limit, reset, window, refills = left
    if not limit or not reset:
        return 0.0
    if refills:
        return _until_enough(kind, remaining, limit, reset)
    if remaining <= RESERVE * limit:
        return reset
    if window:
        return max(0.0, min(reset, window) - remaining / limit * window)
    return reset / remaining if remaining < LOW * limit else 0.0


def _until_enough(kind: str, remaining: float, limit: float, reset: float) -> float:
    low, enough = LOW * limit, ENOUGH * limit
    if kind == "requests" and remaining < low:
        low = min(low, max(LOW_CALLS, LOW_SECONDS * (limit - remaining) / reset))
        enough = min(enough, 2 * low)
    return reset * (enough - remaining) / (limit - remaining) if remaining < low else 0.0


class Pacer:
    """Says which keys are to be paused, and for how long; it says each pause once.

    Args:
        keys: the key of each kind of Allowance; other kinds are left alone. None: all of them are the request's key.
        longest: seconds of a pause at most.
    """

    __slots__ = ("_ends", "_keys", "_longest", "_resets")

    def __init__(self, keys: Mapping[str, str] | None, longest: float) -> None:
        self._keys, self._longest = keys, longest
        self._ends: dict[str, float] = {}
        self._resets: dict[tuple[str, str], float] = {}

    def pauses(self, key: str, allowances: Mapping[str, Allowance], now: float) -> dict[str, float]:
        """Return the seconds for which keys are to be paused, by what a response to a request of this key says."""
        found: dict[str, float] = {}
        for kind, left in allowances.items():
            name = key if self._keys is None else self._keys.get(kind)
            if name is not None and (seconds := pause_of(kind, self._sharp((name, kind), left, now))) >= LEAST:
                found[name] = max(found.get(name, 0.0), min(seconds, self._longest))
        return {name: seconds for name, seconds in found.items() if self._is_new(name, seconds, now)}

    def _sharp(self, what: tuple[str, str], left: Allowance, now: float) -> Allowance:
        """Know better when a window ends than one response that says it in whole seconds, rounded up."""
        if not left.window or left.refills or left.reset is None:
            return left
        at, known = now + left.reset, self._resets.get(what, 0.0)
        if not now < known < at < known + 1.5:
            if len(self._resets) > 1000:
                self._resets = {each: ends for each, ends in self._resets.items() if ends > now}
            self._resets[what] = known = at
        return left._replace(reset=known - now)

    def _is_new(self, key: str, seconds: float, now: float) -> bool:
        if now + seconds < self._ends.get(key, now) + LEAST:
            return False
        if len(self._ends) > 1000:
            self._ends = {name: ends for name, ends in self._ends.items() if ends > now}
        self._ends[key] = now + seconds
        return True

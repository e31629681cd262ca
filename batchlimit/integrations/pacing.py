"""How long calls are held back, by pauses, by what upstream says is left, so that its 429 does not come."""

from collections.abc import Mapping

from batchlimit.integrations.told import Allowance

LOW, ENOUGH = 0.2, 0.4
"""Below this part of a limit calls are held back, until as much of it is there again,"""
LOW_CALLS, LOW_SECONDS = 5.0, 0.2
"""but of a limit of requests below so many, or what it refills in so many seconds, until there is twice that."""
RESERVE = 0.02
"""This part of a window's limit is left: strangers, and calls that are under way, spend it."""
LEAST, MOST = 0.02, 60.0
"""A shorter pause (s) costs more than it spares. After so long a call asks anew, for the news may be stale."""
_What = tuple[str, str]
"""A key, and a kind of allowance."""


def pause_of(kind: str, left: Allowance) -> float:
    """Return for how many seconds nothing more is to be sent.

    In a window, calls are held back to where the limit would be if it were spent evenly: strangers may spend the rest.
    A limit that refills holds calls back while little is left. If its kind is unknown, the little is spread.
    """
    remaining, limit, reset, window, refills = left
    if not limit or not reset:
        return 0.0
    if refills:
        low, enough = LOW * limit, ENOUGH * limit
        if kind == "requests" and remaining < low:
            low = min(low, max(LOW_CALLS, LOW_SECONDS * (limit - remaining) / reset))
            enough = min(enough, 2 * low)
        return reset * (enough - remaining) / (limit - remaining) if remaining < low else 0.0
    if remaining <= RESERVE * limit:
        return reset
    if window:
        return max(0.0, min(reset, window) - remaining / limit * window)
    return reset / remaining if remaining < LOW * limit else 0.0


class Pacer:
    """Says once which keys are to be paused, and how long. News that is unchanged after that is stale, as Azure's."""

    __slots__ = ("_ends", "_keys", "_longest", "_reasons", "_resets")

    def __init__(self, keys: Mapping[str, str] | None, longest: float) -> None:
        self._keys, self._longest = keys, min(longest, MOST)
        self._ends: dict[str, float] = {}
        self._resets: dict[_What, float] = {}
        self._reasons: dict[_What, tuple[float, float]] = {}  # what was left, and until when that is no news

    def pauses(self, key: str, allowances: Mapping[str, Allowance], now: float) -> dict[str, float]:
        """Return the seconds for which keys are to be paused, by what a response to a request of this key says."""
        found: dict[str, float] = {}
        for kind, left in allowances.items():
            name = key if self._keys is None else self._keys.get(kind)
            if name is not None and (seconds := self._seconds((name, kind), left, now)):
                found[name] = max(found.get(name, 0.0), seconds)
        new = {name: each for name, each in found.items() if now + each >= self._ends.get(name, now) + LEAST}
        if len(self._ends) + len(new) > 1000:
            self._ends = {name: ends for name, ends in self._ends.items() if ends > now}
        self._ends |= {name: now + each for name, each in new.items()}
        return new

    def _seconds(self, what: _What, left: Allowance, now: float) -> float:
        if left.window and not left.refills and left.reset is not None:
            # Each response says in whole seconds when a window ends, rounded up: together they know it better.
            at, known = now + left.reset, self._resets.get(what, 0.0)
            if not now < known < at < known + 1.5:
                if len(self._resets) > 1000:
                    self._resets = {each: ends for each, ends in self._resets.items() if ends > now}
                self._resets[what] = known = at
            left = left._replace(reset=known - now)
        seconds = min(pause_of(what[1], left), self._longest)
        remaining, ends = self._reasons.get(what, (None, 0.0))
        if seconds < LEAST or (left.remaining == remaining and now >= ends):
            return 0.0
        if left.remaining != remaining:
            if len(self._reasons) > 1000:
                self._reasons = {each: reason for each, reason in self._reasons.items() if reason[1] > now}
            self._reasons[what] = left.remaining, now + seconds
        return seconds

"""What this process knows of the lines of refused tasks: one that is new does not overtake those that come back."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from batchlimit.base.clock import steady
from batchlimit.base.decision import Decision

_DENSE = 0.97
"""Turns are so much closer together than tokens, so that no token is lost where a task is late, or never comes because
it was revoked. A task whose turn came too early waits for the next token, or lines up again."""
_UNTOLD = 1.0
"""Seconds from one turn to the next where a quota refills nothing."""
_SOONEST = 0.001
"""A broker counts milliseconds, and takes 0 for no delay."""
_MANY = 10_000
"""Lines, beyond which those that are over are forgotten."""


class Turn(NamedTuple):
    """What a task asks for that lines up.

    Attributes:
        wait: seconds until the first turn, if nobody is in line.
        spacing: seconds from its turn to the next.
    """

    wait: float
    spacing: float


@dataclass(slots=True)
class _Line:
    begins: float
    """When the first turn is due; inf: tokens lie there unused, so a new task asks."""
    ends: float
    """When the last one is due that this process told."""
    spacing: float
    """Seconds between two turns at a cost of 1."""
    lingers: float = 0.0
    """Until when a task whose turn came too early waits for the next token: one at a time."""


class Lines:
    """The lines of all keys, as far as this process knows. They are kept in the store; `RateLimiter.line_up` asks it.

    Racing threads may lose a change: then a new task asks that was to line up.

    Args:
        clock: returns seconds (default None: the system's clock).

    Example:
        >>> lines = Lines(lambda: 0.0)
        >>> lines.behind("mail", 1)  # nobody is in line
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or steady
        self._lines: dict[str, _Line] = {}

    def __repr__(self) -> str:
        return f"<Lines of {len(self._lines)} keys>"

    def behind(self, key: str, cost: int) -> Turn | None:
        """Return what a new task is to ask for while others are due before it; None: nobody is."""
        line = self._lines.get(key)
        if line is None or not line.begins <= self._clock() < line.ends:
            return None
        return Turn(0.0, cost * line.spacing)

    def refused(self, key: str, cost: int, decision: Decision, times: int) -> float | Turn:
        """Say what becomes of a task that found no token.

        Args:
            key: what it is charged to.
            cost: whole tokens.
            decision: the refusal.
            times: how often it was rescheduled.

        Returns:
            What it asks for, as it lines up; or seconds: its turn came too early, and it waits for the next token.
        """
        rate = 0.0 if decision.quota is None else decision.quota.bandwidths[decision.binding or 0].rate
        spacing = _DENSE / rate if rate else _UNTOLD
        now, line = self._clock(), self._line(key)
        line.spacing = spacing
        if times and decision.retry_after <= cost * spacing and line.lingers <= now:
            line.lingers = now + decision.retry_after
            return max(decision.retry_after, _SOONEST)
        if line.ends <= now or line.begins == math.inf:
            line.begins = now + decision.retry_after
        return Turn(decision.retry_after, cost * spacing)

    def told(self, key: str, seconds: float, longest: float) -> float:
        """Take note of a turn; return for how many seconds its task is sent away.

        Args:
            key: which line.
            seconds: until the turn.
            longest: seconds; a task whose turn is later comes back meanwhile, and asks again.
        """
        if seconds > longest:
            return random.uniform(0.5, 1.0) * longest
        line = self._line(key)
        line.ends = max(line.ends, self._clock() + seconds)
        return max(seconds, _SOONEST)

    def admitted(self, key: str, remaining: int, limit: int) -> None:
        """Take note that a task of a line found its token, and how many were left beside it, of how many."""
        if remaining * 2 > limit and (line := self._lines.get(key)) is not None:
            line.begins = math.inf

    def _line(self, key: str) -> _Line:
        if (line := self._lines.get(key)) is not None:
            return line
        now = self._clock()
        if len(self._lines) >= _MANY:
            self._lines = {each: line for each, line in self._lines.copy().items() if line.ends > now}
        return self._lines.setdefault(key, _Line(now, now, _UNTOLD))

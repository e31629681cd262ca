"""What a task is charged to, and whether it runs now: one vocabulary for all task queues."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from batchlimit import AsyncRateLimiter, RateLimiter, StoreUnavailable
from batchlimit.base.clock import steady
from batchlimit.base.decision import Decision
from batchlimit.base.steps import Steps, drive
from batchlimit.base.steps import run as run_steps
from batchlimit.quota.template import Cost, Key, Template
from batchlimit.reservoir.options import check_seconds

L = TypeVar("L", RateLimiter, AsyncRateLimiter)
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
    """What a task asks for that lines up."""

    wait: float  # seconds until the first turn, if nobody is in line
    spacing: float  # seconds from its turn to the next


@dataclass(slots=True)
class _Line:
    begins: float  # when the first turn is due; inf: tokens lie there unused, so a new task asks
    ends: float  # when the last one is due that this process told
    spacing: float  # seconds between two turns at a cost of 1
    largest: float = math.inf  # what a task may cost: others would wait for a turn of one that never fits
    lingers: float = 0.0  # until when a task whose turn came too early waits for the next token: one at a time


class Lines:
    """The lines of all keys as this process knows them; the store keeps them. Racing threads may lose a change."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or steady
        self._lines: dict[str, _Line] = {}

    def __repr__(self) -> str:
        return f"<Lines of {len(self._lines)} keys>"

    def behind(self, key: str, cost: int) -> Turn | None:
        """Return what a new task is to ask for while others are due before it; None: nobody is."""
        line = self._lines.get(key)
        if line is None or cost > line.largest or not line.begins <= self._clock() < line.ends:
            return None
        return Turn(0.0, cost * line.spacing)

    def refused(self, key: str, cost: int, decision: Decision, times: int) -> float | Turn:
        """Return what a task without a token asks for, as it lines up, or how long (s) it waits: it came too early."""
        rate = 0.0 if decision.quota is None else decision.quota.bandwidths[decision.binding or 0].rate
        spacing = _DENSE / rate if rate else _UNTOLD
        now, line = self._clock(), self._line(key)
        line.spacing, line.largest = spacing, decision.quota.largest_cost if decision.quota else math.inf
        if times and decision.retry_after <= cost * spacing and line.lingers <= now:
            line.lingers = now + decision.retry_after
            return max(decision.retry_after, _SOONEST)
        if line.ends <= now or line.begins == math.inf:
            line.begins = now + decision.retry_after
        return Turn(decision.retry_after, cost * spacing)

    def told(self, key: str, seconds: float, longest: float) -> float:
        """Note a turn; return how long (s) its task is away. One whose turn is later than `longest` asks meanwhile."""
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


TIMES = "batchlimit"
"""Where a message notes how often its task was rescheduled."""
_lines: WeakKeyDictionary[Any, Lines] = WeakKeyDictionary()
"""Those of each limiter, whichever tasks share it."""
_AWAY = 5.0
"""Seconds after which a task comes back at the latest while the store is away."""


class Run(NamedTuple):
    """A task that is about to run."""

    task: str  # its name
    function: Callable[..., Any]  # what it runs; fields of a key name its parameters
    args: Sequence[Any]  # its arguments
    kwargs: Mapping[str, Any]  # those by name
    times: int  # how often it was rescheduled


class _Charged(Generic[L]):
    """Makes keys of the arguments of tasks."""

    _kind: type

    def __init__(self, limiter: L, key: Key = "{task}", cost: Cost = 1, longest: float = 600.0) -> None:
        kind, given = self._kind.__name__, type(limiter).__name__
        if not isinstance(limiter, self._kind):
            raise TypeError(f"these tasks need a limiter that is a {kind}, not a {given}")
        check_seconds("longest", longest)
        Template(key, cost)  # a typo raises at the start
        self._limiter: Any = limiter
        self._key, self._cost, self._longest = key, cost, longest
        self._lines = _lines.setdefault(limiter, Lines())
        self._charges: dict[str, Callable[..., tuple[str, int]]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} by {Template(self._key, self._cost)!r}>"

    def charge(self, run: Run) -> tuple[str, int]:
        """Return key and cost of a task; ValueError or TypeError: the key names no parameter of it."""
        known = self._charges.get(run.task)
        if known is None:
            text, name = self._key, run.task.replace("{", "{{").replace("}", "}}")
            template = Template(text.replace("{task}", name) if isinstance(text, str) else text, self._cost)
            known = self._charges[run.task] = template.of(run.function)
        return known(*run.args, **run.kwargs)

    def steps(self, run: Run) -> Steps[float]:
        """Charge a task, or find out for how many seconds it is to be sent away; 0.0: it was charged."""
        key, cost = self.charge(run)
        turn = None if run.times else self._lines.behind(key, cost)
        if turn is None and (
            leased := self._limiter.take_leased({key: cost})
        ):  # a hit by `decide` takes ten times as long
            if run.times:
                self._lines.admitted(key, leased[key][0], leased[key][1].largest_cost)
            return 0.0
        try:
            if turn is None:
                decision = yield self._limiter.decide(key, cost)
                if decision.allowed:
                    if run.times:
                        self._lines.admitted(key, decision.remaining, decision.limit)
                    return 0.0
                if decision.retry_after == math.inf:  # no turn is its: others may fit
                    return self._lines.told(key, math.inf, self._longest)
                found = self._lines.refused(key, cost, decision, run.times)
                if isinstance(found, float):
                    return min(found, self._longest)
                turn = found
            wait = min(turn.wait, self._longest)
            told = yield self._limiter.line_up(key, wait, turn.spacing, longest=self._longest)
        except StoreUnavailable:
            return random.uniform(0.5, 1.0) * min(_AWAY, self._longest)
        return self._lines.told(key, told, self._longest)


class TaskLimit(_Charged[RateLimiter]):
    """Decides for the tasks of a worker that runs them in threads or processes.

    A worker never sleeps for a task: one without a token comes back in its turn, and uses up no retry. Refused tasks
    come back one after the other, and new ones line up behind them.

    Args:
        limiter: a RateLimiter, which its owner closes.
        key: what a task is charged to (default "{task}", its name): text whose fields name parameters of the task, as
            in "mail:{to}", or a function of its arguments.
        cost: whole tokens (default 1), or a function of its arguments.
        longest: seconds that a task is sent away for at most (default 600).

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> limit = TaskLimit(RateLimiter.from_url("memory://", "1/hour"), "mail:{to}")
        >>> run = Run("mail", lambda to: None, ("ann",), {}, 0)
        >>> limit.wait(run), round(limit.wait(run))
        (0.0, 600)
    """

    _kind = RateLimiter

    def wait(self, run: Run) -> float:
        """Charge a task (0.0: it runs now), or return for how many seconds it is to be sent away; it never sleeps."""
        return run_steps(self.steps(run))


class AsyncTaskLimit(_Charged[AsyncRateLimiter]):
    """A TaskLimit for workers that run tasks on an event loop.

    Args:
        limiter: an AsyncRateLimiter, which its owner closes.
        key, cost, longest: as of TaskLimit.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> limit = AsyncTaskLimit(AsyncRateLimiter.from_url("memory://", "1/hour"), "mail:{to}")
        >>> run = Run("mail", lambda to: None, ("ann",), {}, 0)
        >>> await limit.wait(run), round(await limit.wait(run))
        (0.0, 600)
    """

    _kind = AsyncRateLimiter

    async def wait(self, run: Run) -> float:
        """See TaskLimit.wait."""
        return await drive(self.steps(run))

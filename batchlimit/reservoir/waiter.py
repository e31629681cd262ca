"""One caller in the queue for tokens, and what it may be told: Admit, Refuse, Fail, Retired, Wait or Fetch."""

import copy
import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import Ask, GiveBack
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.quota.quota import Quota


class Wakeable(Protocol):
    """What a caller waits on, by whatever it waits: a thread's event, a task's future."""

    def set(self) -> None:
        """Wake whoever waits."""


class NoEvent:
    """Wakes nobody."""

    def set(self) -> None:
        """Do nothing."""


NOBODY: Wakeable = NoEvent()
"""The waker of a waiter that nobody waits with."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Go ahead, if the clock reads less than `before`: the tokens are good until then."""

    before: float
    generation: int = field(default=0, compare=False)
    """The generation of the lease (see Lease) that they were taken of: to another one they do not return."""
    borrowed: bool = field(default=False, compare=False)
    """Whether they were not the bucket's, but lent while the store was away."""
    is_shadow: bool = field(default=False, compare=False)
    """Whether it was to be refused, and its key is in shadow mode: it has no tokens of the bucket."""


def half_of(admit: Admit, until: float, now: float) -> float:
    """Return the deadline of who holds tokens and wants others too: before half of their time is over, or `until`."""
    return min(until, now + (admit.before - now) / 2)


@dataclass(frozen=True, slots=True)
class Refuse:
    """No token for this caller; the same cost is expected to fit after `retry_after` seconds."""

    retry_after: float


@dataclass(frozen=True, slots=True)
class Fail:
    """The store did not answer the ask that spoke for this caller; `hint` says what the caller's limiter lacks."""

    error: Exception
    hint: str = field(default="", compare=False)

    def to_raise(self, key: str) -> Exception:
        """Return an error for this caller alone, of a class that callers know.

        One that many raise would mix up their tracebacks. Its cause is what went wrong, not the same error once more.
        """
        mine = _copy(self.error)
        if isinstance(mine, StoreUnavailable):
            mine.key = key
        if self.hint:
            mine.args = (f"{mine}; {self.hint}",)
        mine.__cause__ = self.error.__cause__ or self.error
        if isinstance(self.error, CircuitOpen):
            mine.__cause__ = None  # nothing went wrong just now
        return mine


def _copy(error: Exception) -> Exception:
    try:
        if not isinstance(error, CircuitOpen):
            return copy.copy(error)
    except Exception:  # noqa: BLE001  a store's own error, whose constructor wants something else
        pass
    mine = StoreUnavailable(str(error))
    vars(mine).update(vars(error))
    return mine


@dataclass(frozen=True, slots=True)
class Retired:
    """The reservoir has retired, and another one stands for the key: the caller is to begin anew there."""


RETIRED = Retired()


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep until woken, at most `seconds` (None: until woken), then step again."""

    seconds: float | None


class WholeBurst(NamedTuple):
    """A bucket whose whole burst is leased to one instance: its epoch, its version, and its rate (tokens/s)."""

    epoch: int
    version: int
    rate: float


class Fetch(NamedTuple):
    """Send `ask` to the store, then report `granted` or `failed`, whatever happens: nobody else fetches meanwhile."""

    ask: Ask
    quota: Quota
    sent: float
    """The instant (instance clock) from which a lease counts: just before the ask leaves."""
    cost: int
    """Tokens that the first waiter asks for; 0 for a prefetch."""
    repeated: bool
    """Whether this ask repeats one whose answer was lost."""
    whole_burst: WholeBurst | None = None
    """The bucket whose whole burst was leased to this instance when the ask left."""


Verdict = Admit | Refuse | Fail | Retired
Step = Verdict | Wait | Fetch


@dataclass(slots=True, eq=False, repr=False)
class Waiter:
    """One caller's place in the queue. `verdict` is set once the caller has been admitted, refused or failed.

    What a `tentative` waiter is given counts as this instance's, and not as spent, until it is confirmed: its caller
    may still have to leave it here. One that is `prompt` as well is confirmed, or leaves, within a few turns of its
    event loop: until then nothing is asked for.
    """

    cost: int
    deadline: float
    event: Wakeable
    tentative: bool = field(default=False, kw_only=True)
    prompt: bool = field(default=False, kw_only=True)
    priority: int = field(default=1, kw_only=True)
    """How many tokens callers like this one get for each of a caller of priority 1, while both wait."""
    number: int = field(default=0, init=False)
    """Its place in the order in which waiters are served."""
    beyond: int = field(default=0, init=False)
    """Tokens that it will ask for when it has got its cost; only a debt does."""
    reports: int = field(default=0, init=False)
    """How many the lease had made when this waiter was given its tokens."""
    asked: int = field(default=0, init=False)
    """How many asks have spoken for it, where it takes the first answer."""
    request: Fetch | GiveBack | None = field(default=None, init=False)
    """The last thing that this caller was told to send to the store."""
    verdict: Verdict | None = field(default=None, init=False)

    def is_good(self, now: float) -> bool:
        """Whether it was admitted, by tokens that may be spent still."""
        return isinstance(self.verdict, Admit) and now < self.verdict.before

    def __repr__(self) -> str:
        return f"<Waiter of {self.cost} until {self.deadline}: {self.verdict}>"


def wait_for(seconds: float, waiter: Waiter, now: float) -> Wait:
    """Have a caller wait for `seconds` (inf: until it is woken), but no longer than until its deadline."""
    if waiter.deadline != NO_WAIT:
        seconds = min(seconds, waiter.deadline - now)
    return Wait(None if seconds == math.inf else seconds)

"""What the guarded stores of both APIs share: how long a call may take, and which calls there are."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from batchlimit.bucket.messages import Ask, GiveBack
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.statistics import Health
from batchlimit.stores.optional import AsyncSpender, Spender, no_pauses
from batchlimit.stores.outage import Breaker, Outages, Probe, addressed, log_unreachable, too_late, unavailable
from batchlimit.stores.protocols import AsyncRemote, Remote

TO_CONNECT = 5
"""Deadlines that a call may wait for a connection if the store answered before and does not fail now. It is probably
there, so the call should not be refused; but a connection that hangs should not cost `connect_timeout`."""
MANY = 64
"""A fetch that brings so many times what one caller wants serves all callers that wait at the refill gate."""
_PART = 1 / 8
_REPEATS = "; its client repeats calls that fail, which hides why: make it with retry=Retry(NoBackoff(), 0)"
_ENCRYPTED = "; a server without TLS never answers a client with it: then use redis:// or valkey://"
_ANY = Quota(1.0, 1)
"""For a `peek` that only shows whether the store answers."""


class Guard:
    """Calls a store within `deadline` seconds, or some more where a connection has to be made, and past its breakers.

    Its calls return what `call` of the API does: in a thread the outcome, in a task something to await.
    """

    call: Callable[..., Any]
    """Calls a function of the store for a key."""
    _outages: Outages
    _started: Callable[[Probe], Callable[[], bool]]
    """Starts a prober; returns what says whether it works still, or raises where none can be had."""
    _has_answered = _is_stopped = False

    def __init__(self, store: Any, deadline: float) -> None:
        self._store, self._connecting = store, 1.0
        self.deadline = deadline  # how long (s) an answer may take
        self.brief = deadline * _PART  # the longest (s) that a caller waits at the refill gate for another's fetch
        # A store that is no Remote has one part, and is not prompt. Which protocols it keeps is looked at once: to look
        # takes 10 us.
        whole = SimpleNamespace(is_prompt=False, part=lambda _key: "", probe=lambda key: store.peek(key, _ANY))
        self._remote: Any = store if isinstance(store, Remote | AsyncRemote) else whole
        self.spender: Any = store if isinstance(store, Spender | AsyncSpender) else None
        self.spends = self.spender is not None
        self.spends_together: bool = getattr(self.spender, "spends_together", False)

    def allow(self, connect_timeout: float) -> None:
        """Give a store that has not answered yet, and each probe, so many seconds more: they may have to connect."""
        self._connecting = connect_timeout

    @property
    def address(self) -> str:
        return str(self._store.address)

    def late(self, seconds: float) -> StoreUnavailable:
        """Return what a call raises that had no answer in so many seconds."""
        hint = _ENCRYPTED if self.address.startswith("rediss") and not self._has_answered else ""
        return too_late(self.address, seconds, _REPEATS if getattr(self._store, "repeats", False) else hint)

    @property
    def health(self) -> Health:
        return self._outages.health

    @property
    def longest(self) -> float:
        """How long (s) a call may take, with a connection that has to be made first."""
        return self.deadline + self._connecting

    def take(self, key: str, quota: Quota, ask: Ask) -> Any:
        return self.call(key, self._store.take, key, quota, ask)

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> Any:
        return self.call(key, self._store.give_back, key, quota, back)

    def peek(self, key: str, quota: Quota) -> Any:
        return self.call(key, self._store.peek, key, quota)

    @property
    def pauses(self) -> Any:
        """The pauses of the store, without a guard: they are for `call`. TypeError: it has none."""
        if (pauses := getattr(self._store, "pauses", None)) is None:
            raise no_pauses(self._store)
        return pauses

    def _stands_in(self, part: str, key: str) -> bool:
        """Start a prober unless one works; True: none can be had, and the caller has to ask instead."""
        outages = self._outages
        if outages.has_prober(part):
            return False
        with outages.lock():
            if outages.has_prober(part):
                return False
            probe = Probe(part, key, outages.breakers[part])
            try:
                outages.began(probe, self._started(probe))
            except Exception:  # noqa: BLE001  no thread; or a task factory of the user's own
                return not outages.rests(probe)
        return False

    def _to_connect(self, breaker: Breaker) -> float:
        """Return how long a call may wait for a connection, on top of its deadline (s); longer if none did in vain."""
        is_known = self._has_answered or getattr(breaker.error, "code", "") == "TIMEOUT"
        return min(self._connecting, TO_CONNECT * self.deadline) if is_known else self._connecting

    def _counted(self, part: str, key: str, error: Exception) -> StoreUnavailable:
        """Count the error of a call; return it as StoreUnavailable."""
        found = addressed(error if isinstance(error, StoreUnavailable) else unavailable(error), self.address)
        if isinstance(found, BucketUnavailable):
            self._answered(part)
            self._outages.unserved(key, found)
        else:
            self._failed(part, key, found)
        return found

    def _failed(self, part: str, key: str, error: StoreUnavailable) -> None:
        error._is_final = not self._is_stopped and self._outages.failed(part, error)  # stopped: it tells of our end
        if error._is_final:
            self._stands_in(part, key)
            log_unreachable(self.address, part, error)

    def _answered(self, part: str) -> None:
        self._has_answered = True
        self._outages.answered(part)

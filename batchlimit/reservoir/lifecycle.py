"""How one key's reservoir begins and ends: restored from a snapshot, at rest, idle, evicted or closed."""

from batchlimit.bucket.messages import GiveBack
from batchlimit.quota.grammar import LARGEST_BURST
from batchlimit.reservoir.admission import Admission
from batchlimit.reservoir.dormant import KeySnapshot
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.requests import Requests
from batchlimit.reservoir.sizing import Demand
from batchlimit.reservoir.waiter import Fail, Fetch, Waiter

_AWAKE = 1.0
"""For so long (s) after its last use a key stays awake: a busy one is not to rest and to wake at its every ask."""


class Lifecycle:
    """Retires the reservoir: then another one stands for the key, and an API must not use this one any more.

    - `retire`: nobody used the empty reservoir for a while. A `snapshot` is left for the next one, unless the key is
      idle by then.
    - `evict`: it has to make room for another key.
    - `close`, then `last_ask` and `drain`: the limiter is closed. `ended` is the error that every later caller gets.
    """

    __slots__ = ("_admission", "_closer", "_idle_after", "_requests", "_state", "ended", "snapshot")

    def __init__(self, state: KeyState, admission: Admission, requests: Requests, idle_after: float) -> None:
        """`idle_after`: the key is forgotten so many seconds after its last use."""
        self._state, self._admission, self._requests, self._idle_after = state, admission, requests, idle_after
        self._closer: Waiter | None = None
        self.ended: Exception | None = None
        self.snapshot: KeySnapshot | None = None

    def __repr__(self) -> str:
        return f"<Lifecycle: {'retired' if self._state.is_retired else 'open'}>"

    def restore(self, snapshot: KeySnapshot) -> None:
        """Begin with what the key's last reservoir knew."""
        self._state.demand = Demand(snapshot.counted_at, snapshot.demand)
        self._requests.last_target = int(snapshot.last_want)
        self._state.view.recall(snapshot)

    def retires_at(self) -> float:
        """Return when an empty reservoir retires: soon if a snapshot says all that is to be kept, else when idle."""
        state = self._state
        if state.lease.pledged:
            return state.used + _AWAKE  # a waiter that was served comes back here, should it come too late
        idle = state.used + self._idle_after
        if state.fallback.bucket is not None:
            return max(idle, state.fallback.bucket.full_at())
        if state.fallback.is_owed or self._requests.lost_number is not None or state.has_told_quota:
            return idle
        return min(idle, max(state.used + _AWAKE, state.tokens.expires, state.denials.dry_until))

    def retire(self, now: float) -> None:
        """Retire at rest or idle."""
        self._state.is_retired, self.snapshot = True, self._snapshot(now)

    def evict(self) -> bool:
        """Retire to make room; False while somebody waits or is served, a request is in flight, or a refund is owed.

        The tokens here expire at the store, or count as spent when this instance asks for the key again. To give them
        back would double the calls of the store for somebody who invents keys.
        """
        state = self._state
        if state.queue or state.in_flight is not None or self._requests.refunds or state.lease.pledged:
            return False
        state.lease.take_all()
        state.tokens.disown()
        state.is_retired = True
        return True

    def close(self, error: Exception, closer: Waiter) -> bool:
        """Fail every waiter, and retire; to be followed by `drain`.

        Returns:
            Whether a request is in flight: then the closer is woken when it has ended, so that it can drain the rest.
        """
        state = self._state
        state.is_retired, self.ended = True, error
        for waiter in state.queue:
            if waiter is not state.overdraft.waiter:
                state.queue.dismiss(waiter, Fail(error))
        self._closer = closer
        return state.in_flight is not None

    def last_ask(self, now: float) -> Fetch | None:
        """Ask once more before the end: for what is owed, or for the tokens of an answer that was lost.

        The sizer is not asked, for nobody comes any more. `drain` forgives the debt that the bucket cannot pay now.
        """
        self._admission.advance(now)
        if self._state.in_flight is not None:
            return None
        if self._state.overdraft.total == 0 and self._requests.lost_number is None:
            return None
        return self._requests.ask_for(now, 0, ahead=0.0)

    def drain(self) -> GiveBack | None:
        """Give back all free tokens; None if there are none, or while a request is in flight."""
        state = self._state
        if state.in_flight is not None:
            return None
        if self.ended is not None:
            state.queue.withdraw(state.overdraft.waiter)
            state.overdraft.forget()
        held = state.lease.take_all()
        tokens = 0 if state.lease.borrowed else held
        return self._requests.give_back(tokens) if tokens or self._requests.refunds else None

    def wake_closer(self) -> None:
        """Wake the caller that closes, if there is one: a request has ended."""
        if self._closer is not None:
            self._state.queue.wake(self._closer)

    def _snapshot(self, now: float) -> KeySnapshot | None:
        """Return what is to be known when the key is asked for again; None once that is nothing any more."""
        state = self._state
        if now >= state.used + self._idle_after:
            return None
        last_want = min(self._requests.last_target, LARGEST_BURST)
        return KeySnapshot(state.used, state.demand.rate, state.demand.at, last_want, *state.view.known())

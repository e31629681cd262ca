"""The store of a limiter, with a deadline for each call and a circuit breaker."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, TypeVarTuple

from tenacity import Retrying, sleep_using_event, stop_when_event_set

from batchlimit.base.blocking import not_reentered, own_lock
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Groups, Level, SpendReply
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.statistics import Health
from batchlimit.stores.client.deadline import NeedsConnection, deadline_scope
from batchlimit.stores.optional import Pausable, Pauses, Spender, no_pauses
from batchlimit.stores.outage import (
    ANY,
    Breaker,
    Outages,
    Probe,
    Timeouts,
    addressed,
    log_unreachable,
    too_late,
    unavailable,
)
from batchlimit.stores.protocols import Pipelined, Remote, Store
from batchlimit.sync.daemon_pool import DaemonPool

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class GuardedStore(Timeouts):
    """Calls a store so that each call returns, or raises StoreUnavailable, within `deadline` seconds.

    A call runs in the caller's thread if the store keeps the deadline itself (`is_prompt`), else in a DaemonPool.
    After three consecutive failures the circuit breaker of that part of the store opens. A thread then probes the part:
    after about 0.1 s, and again after 0.1 to 1.1 s each, until it answers. Where no thread can be had, a call is made
    after each pause.
    """

    def __init__(self, store: Store, deadline: float) -> None:
        super().__init__(store, deadline)
        self._store = store
        self._remote = store if isinstance(store, Remote) else _Whole(store)
        self._is_prompt = self._remote.is_prompt
        # Which protocols it keeps is looked at once: to look takes 10 us.
        self._pipelined = store if isinstance(store, Pipelined) else None
        self._spender = store if isinstance(store, Spender) else None
        self.is_pipelined = self._pipelined is not None and self._is_prompt
        self.spends = self._spender is not None
        self.spends_together = self._spender is not None and self._spender.spends_together
        self._begin()

    def _begin(self) -> None:
        self._has_answered = False
        self._pool, self._scouts = DaemonPool(), DaemonPool()
        self._lock = own_lock()  # held to change the circuit breakers, and to start a prober
        self._outages = Outages(lambda: self.address, lambda: not_reentered(self._lock))
        self._stopped = threading.Event()

    def __repr__(self) -> str:
        return f"<Guard of {self._store!r}: {self._outages}>"

    @property
    def health(self) -> Health:
        """How the store has been."""
        return self._outages.health

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        return self.call(key, self._store.take, key, quota, ask)

    def take_many(self, asks: Sequence[tuple[str, Quota, Ask]]) -> Sequence[Grant | StoreUnavailable]:
        """See Pipelined; only for a store that is one. It never raises. A failure of all asks counts as one failure."""
        store = self._pipelined
        assert store is not None
        try:
            outcomes = self.call(asks[0][0], store.take_many, asks)
        except StoreUnavailable as error:
            return [error] * len(asks)
        for (key, _, _), each in zip(asks, outcomes, strict=True):
            if isinstance(each, StoreUnavailable):
                self._outages.unserved(key, addressed(each, self.address))
        return outcomes

    def spend(self, groups: Groups, look: bool) -> SpendReply:
        """See Spender; only for a store that is one. The first key says which part of the store is asked."""
        store = self._spender
        assert store is not None
        return self.call(groups[0][0].key, partial(store.spend, look=look, within=self._deadline), groups)

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """See Store.give_back."""
        return self.call(key, self._store.give_back, key, quota, back)

    def peek(self, key: str, quota: Quota) -> Level:
        """See Store.peek."""
        return self.call(key, self._store.peek, key, quota)

    @property
    def pauses(self) -> Pauses:
        """The pauses of the store, without a guard: they are for `call`. TypeError: it has none."""
        if isinstance(self._store, Pausable):
            return self._store.pauses
        raise no_pauses(self._store)

    def after_fork(self) -> None:
        """In a forked child: begin without threads, and with closed circuit breakers."""
        self._begin()
        self._store.after_fork()

    def stop(self) -> None:
        """Have all threads end."""
        self._stopped.set()
        self._pool.stop()
        self._scouts.stop()

    def call(self, key: str, work: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a function of the store for a key, within the deadline and past the circuit breaker."""
        part = self._remote.part(key)
        breaker = self._outages.breakers[part]
        if breaker.opened_at is not None and not self._stands_in(part, key):
            raise self._outages.refusal(part)
        began = time.perf_counter()
        try:
            result = self._bounded(breaker, work, *args)
        except BucketUnavailable as error:
            self._answered(part)
            self._outages.unserved(key, addressed(error, self.address))
            raise
        except StoreUnavailable as error:
            self._failed(part, key, addressed(error, self.address))
            raise
        finally:
            self._outages.took(time.perf_counter() - began)
        self._has_answered = True
        if breaker.consecutive_failures:
            self._outages.answered(part)
        return result

    def _bounded(self, breaker: Breaker, work: Callable[[*Ts], T], *args: *Ts) -> T:
        if self._is_prompt:
            try:
                with deadline_scope(time.monotonic() + self._deadline):
                    return work(*args)
            except NeedsConnection:  # a connection has to be made first
                pass
        seconds = self._deadline + self._to_connect()
        try:
            return self._pool.run(partial(_told, work, *args), self._deadline, seconds, lambda: breaker.is_failing)
        except TimeoutError as error:
            raise too_late(self.address, self._deadline) from error

    def _answered(self, part: str) -> None:
        self._has_answered = True
        self._outages.answered(part)

    def _failed(self, part: str, key: str, error: StoreUnavailable) -> None:
        if not self._stopped.is_set() and self._outages.failed(part, error):
            self._stands_in(part, key)
            log_unreachable(self.address, part, error)

    def _stands_in(self, part: str, key: str) -> bool:
        """Start a prober if there is none: the thread that had to start one may have been interrupted.

        True: no thread can be had, and the caller has to ask instead.
        """
        if self._outages.has_prober(part):
            return False
        with not_reentered(self._lock):
            return not self._outages.has_prober(part) and not self._send_prober(self._outages.probe(part, key))

    def _send_prober(self, probe: Probe) -> bool:
        """Requires the lock. Return False if no thread can be had, and it is time for a probe."""
        try:
            prober = threading.Thread(target=self._probe, args=(probe,), name="batchlimit-prober", daemon=True)
            prober.start()
        except RuntimeError:
            return self._outages.rests(probe)
        self._outages.began(probe, prober.is_alive)
        return True

    def _probe(self, probe: Probe) -> None:
        """Ask whether the part is back, until it is."""

        def look() -> None:
            if probe.is_needed:
                self._scouts.run(lambda: self._remote.probe(probe.key), self._connecting + self._deadline)

        stop, sleep = stop_when_event_set(self._stopped), sleep_using_event(self._stopped)
        if self._stopped.wait(probe.pause):
            return
        with contextlib.suppress(Exception):  # it was stopped; or this key alone is not to be served
            Retrying(stop=stop, sleep=sleep, **probe.retries)(look)
        if probe.is_needed and not self._stopped.is_set():
            # New threads: a store without a timeout may block the old ones for ever.
            before, self._pool = self._pool, DaemonPool()
            before.stop()
            self._answered(probe.part)


def _told(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Turn any error into StoreUnavailable. Not in the caller's thread: a signal handler may raise there."""
    try:
        return work(*args)
    except StoreUnavailable:
        raise
    except Exception as error:
        raise unavailable(error) from error


class _Whole:
    """A store that is no Remote: it has one part, and is not prompt."""

    is_prompt = False

    def __init__(self, store: Store) -> None:
        self._store = store

    def part(self, key: str) -> str:
        return ""

    def probe(self, key: str) -> None:
        self._store.peek(key, ANY)

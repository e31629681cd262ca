"""The store of a limiter, with a deadline for each call and a circuit breaker."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, TypeVarTuple

from tenacity import Retrying, sleep_using_event, stop_when_event_set

from batchlimit.base.blocking import OwnLock, not_reentered, warn_in_loop
from batchlimit.bucket.messages import Ask, Grant
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.deadline import CALL, NeedsConnection
from batchlimit.stores.guard import Guard
from batchlimit.stores.outage import Breaker, Outages, Probe, addressed, unavailable
from batchlimit.stores.protocols import Pipelined, Store
from batchlimit.sync.daemon_pool import DaemonPool

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class GuardedStore(Guard):
    """Calls a store so that each call returns, or raises StoreUnavailable, within `deadline` seconds.

    A call runs in the caller's thread if the store keeps the deadline itself (`is_prompt`), else in a DaemonPool.
    After three consecutive failures the circuit breaker of that part of the store opens. A thread then probes the part:
    after about 0.1 s, and again after 0.1 to 1.1 s each, until it answers. Where no thread can be had, a call is made
    after each pause.
    """

    def __init__(self, store: Store, deadline: float) -> None:
        super().__init__(store, deadline)
        self._is_prompt = self._remote.is_prompt
        self.is_pipelined = isinstance(store, Pipelined) and self._is_prompt
        self._begin()

    def _begin(self) -> None:
        self._has_answered = self._is_stopped = False
        self._pool, self._scouts = DaemonPool(), DaemonPool()
        self._lock = OwnLock()  # held to change the circuit breakers, and to start a prober
        self._outages = Outages(lambda: self.address, lambda: not_reentered(self._lock))
        self._stopped = threading.Event()

    def take_many(self, asks: Sequence[tuple[str, Quota, Ask]]) -> Sequence[Grant | StoreUnavailable]:
        """See Pipelined; only for a store that is one. It never raises. A failure of all asks counts as one failure."""
        try:
            outcomes: Sequence[Grant | StoreUnavailable] = self.call(asks[0][0], self._store.take_many, asks)
        except StoreUnavailable as error:
            return [error] * len(asks)
        for (key, _, _), each in zip(asks, outcomes, strict=True):
            if isinstance(each, StoreUnavailable):
                self._outages.unserved(key, addressed(each, self.address))
        return outcomes

    def after_fork(self) -> None:
        """In a forked child: begin without threads, and with closed circuit breakers."""
        self._begin()
        self._store.after_fork()

    def stop(self) -> None:
        """Have all threads end."""
        self._is_stopped = True
        self._stopped.set()
        self._pool.stop()
        self._scouts.stop()

    def call(self, key: str, work: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a function of the store for a key, within the deadline and past the circuit breaker."""
        part = self._remote.part(key)
        breaker = self._outages.breakers[part]
        if breaker.opened_at is not None and not self._stands_in(part, key):
            raise self._outages.refusal(part)
        began = time.monotonic()
        try:
            result = self._bounded(breaker, began, work, *args)
        except StoreUnavailable as error:
            self._counted(part, key, error)
            raise
        finally:
            self._outages.took(time.monotonic() - began)
        self._has_answered = True
        if breaker.consecutive_failures:
            self._outages.answered(part)
        return result

    def outcome(self, call: Callable[[*Ts], T], *args: *Ts) -> T | StoreUnavailable:
        """Return what a call of the store says, or what is wrong with it."""
        warn_in_loop()
        try:
            return call(*args)
        except StoreUnavailable as error:
            return error

    def _bounded(self, breaker: Breaker, began: float, work: Callable[[*Ts], T], *args: *Ts) -> T:
        if self._is_prompt:
            try:
                CALL.until = began + self.deadline
                return work(*args)
            except NeedsConnection:  # a connection has to be made first
                pass
            finally:
                CALL.until = None
        seconds = self.deadline + self._to_connect(breaker)
        try:
            return self._pool.run(partial(_told, work, *args), self.deadline, seconds, lambda: breaker.is_failing)
        except TimeoutError as error:
            raise self.late(self.deadline) from error

    def _started(self, probe: Probe) -> Callable[[], bool]:
        prober = threading.Thread(target=self._probe, args=(probe,), name="batchlimit-prober", daemon=True)
        prober.start()
        return prober.is_alive

    def _probe(self, probe: Probe) -> None:
        """Ask whether the part is back, until it is."""

        def look() -> None:
            if probe.is_needed:
                self._scouts.run(lambda: self._remote.probe(probe.key), self._connecting + self.deadline)

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

"""The background thread of a limiter: it renews, prefetches and gives back tokens."""

import contextlib
import math
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from batchlimit.base.blocking import OwnLock
from batchlimit.bucket.messages import GiveBack
from batchlimit.errors import StoreUnavailable
from batchlimit.events import log_event, named
from batchlimit.keyspace.timer_heap import TimerHeap
from batchlimit.reservoir.waiter import Fetch
from batchlimit.sync.guarded_store import GuardedStore
from batchlimit.sync.key_entry import TOGETHER, KeyEntry, fetch_together

_PATIENCE = 1.0
"""How long (s) a key entry is left alone whose looking after failed, and the thread that could not be started."""
_CROWD = 1024
"""Whenever so many key entries have come in they are looked through, however early it is: some may have left by now."""

Asks = list[tuple[KeyEntry, Fetch]]


class Refresher:
    """Looks after each key entry at its `due`; the thread starts with the first key entry and ends with `stop`.

    Key entries come in by a dict, each once. A bell wakes the thread only if it would sleep past what is due: a million
    new keys do not wake it a million times. Both may be touched anywhere, even in a destructor: neither takes a lock of
    ours. `finish` rings it with what is to be done for a caller that was interrupted. It is written in C, so no second
    signal handler can raise before that is handed over. The plans belong to the thread. If no thread can be started,
    all live key entries stay in the dict.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        store: GuardedStore,
        retire: Callable[[KeyEntry], None],
        tidy: Callable[[], float],
        ended: Callable[[], None],
    ) -> None:
        """`tidy` is called between two sleeps, and returns when it wants to be called again, at the latest."""
        self._clock = clock
        self._store = store
        self._retire = retire
        self._tidy = tidy
        self._ended = ended
        self._inbox: dict[KeyEntry, None] = {}
        self._bell: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self.finish = self._bell.put
        self._sleeps_until = -math.inf
        self._stopping = False
        self._plans: TimerHeap[KeyEntry] = TimerHeap()
        self._thread: threading.Thread | None = None
        self._tries_at = -math.inf  # when to try anew to start one
        self._starting = OwnLock()  # held to start the thread once

    def watch(self, entry: KeyEntry) -> None:
        """Come to this key entry at its `due`."""
        self._inbox[entry] = None
        if entry.due == math.inf:  # it was let go of meanwhile, or is just being looked after
            self.forget(entry)
        self.come_by(entry.due if len(self._inbox) % _CROWD else -math.inf)

    def come_by(self, at: float) -> None:
        """Call `tidy` by this instant."""
        if self._thread is None and self._clock() >= self._tries_at:
            self._start()
        if at < self._sleeps_until and self._bell.empty():
            self._bell.put(None)

    def forget(self, entry: KeyEntry) -> None:
        """Come to a key entry no more that is not due any more; it may be planned still, for a while."""
        self._inbox.pop(entry, None)

    def stop(self) -> bool:
        """Tell the thread to end after what it is doing, and then to call `ended`; False if none ever started."""
        self._stopping = True
        self._bell.put(None)
        return self._thread is not None

    def join(self, seconds: float) -> None:
        """Wait for the thread to end, unless this is it."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _start(self) -> None:
        if self._starting._is_owned():  # the code that this call interrupted is about to
            return
        with self._starting:
            if self._thread is None:
                try:
                    thread = threading.Thread(target=self._run, name="batchlimit-refresher", daemon=True)
                    thread.start()
                except RuntimeError as error:  # another try follows; until then callers fetch for themselves
                    if self._tries_at == -math.inf:
                        log_event(
                            "tokens.late", "tokens are not renewed or given back in time: %s", error, reason=str(error)
                        )
                    self._tries_at = self._clock() + _PATIENCE
                    return
                self._thread = thread

    def _run(self) -> None:
        with self._starting:  # who started this thread may have been interrupted, and another one begun
            if self._thread not in (None, threading.current_thread()):
                return
            self._thread = threading.current_thread()
        while not self._stopping:
            while not self._bell.empty():
                self._heed(self._bell.get())
            self._tend_due()
            self._sleep(self._tidy())
        self._ended()

    def _tend_due(self) -> None:
        while self._inbox:
            with contextlib.suppress(KeyError):  # the last one was just forgotten
                if (entry := self._inbox.popitem()[0]).due < math.inf:
                    self._plans.add(entry)
        now = self._clock()
        asks: Asks = []
        while not self._stopping and (due := self._plans.take(now)) is not None:
            self._tend(due, asks)
            if len(asks) == TOGETHER:
                self._ask(asks)
                asks = []
        self._ask(asks)

    def _sleep(self, until: float) -> None:
        """Sleep until something is due, or the bell rings. What came in before the bell could ring is seen here."""
        self._sleeps_until = min(until, self._plans.first_at)
        seconds = self._sleeps_until - self._clock()
        if not self._inbox and seconds > 0.0:
            try:
                self._heed(self._bell.get(timeout=min(seconds, threading.TIMEOUT_MAX)))
            except Empty:
                pass
        self._sleeps_until = -math.inf

    def _heed(self, finish: Callable[[], object] | None) -> None:
        """Finish what an interrupted caller left, if that is why the bell rang."""
        try:
            if finish is not None:
                finish()
        except Exception as error:  # noqa: BLE001  the other keys are to be looked after
            log_event("key.unattended", "what an interrupted call had begun was not ended", error=error)

    def _tend(self, entry: KeyEntry, asks: Asks) -> None:
        """Do what there is to do, but what can be asked together; a store that is away is no reason to stop."""
        try:
            match entry.tend():
                case Fetch() as fetch if self._store.is_pipelined:
                    asks.append((entry, fetch))
                case Fetch() as fetch:
                    entry.fetch(fetch)
                case GiveBack() as back:
                    self._ask(asks)  # first: callers of those keys wait for it
                    asks.clear()
                    entry.give_back(back)
                case None:
                    pass
        except StoreUnavailable as error:
            message = "tokens of %s were not given back: %s"
            log_event("tokens.not_returned", message, named(entry.key), error, key=entry.key, reason=str(error))
        except Exception as error:  # noqa: BLE001  a sizer of the user's own
            message = "looking after %s failed; the other keys are looked after"
            log_event("key.unattended", message, named(entry.key), error=error, key=entry.key)
            entry.due = self._clock() + _PATIENCE
            self.watch(entry)
        if entry.reservoir.state.is_retired:
            self._retire(entry)

    def _ask(self, asks: Asks) -> None:
        """Ask for all of them in one round trip, and report each, whatever happens."""
        if not asks:
            return
        try:
            fetch_together(self._store, asks)
        except Exception as error:  # noqa: BLE001  a store of the user's own
            log_event("key.unattended", "looking after %d keys failed", len(asks), error=error)

"""How the keys of a limiter end: waiters fail, and all tokens go back to the store."""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import StoreUnavailable
from batchlimit.events import log_event, named
from batchlimit.reservoir.waiter import Waiter
from batchlimit.sync import key_entry, store_calls
from batchlimit.sync.key_entry import KeyEntry

T = TypeVar("T")


class Drain:
    """Ends key entries; `wrong` is the first thing that went wrong, at whichever key."""

    def __init__(self, error: Exception) -> None:
        """`error`: what waiters get, and later callers."""
        self._error = error
        self.wrong: Exception | None = None

    def run(self, entries: Sequence[KeyEntry], seconds: float) -> None:
        """Fail all waiters first, then return the tokens of each key; wait `seconds` for requests in flight."""
        deadline = time.monotonic() + seconds
        ends = [self.attempt(entry, partial(self._close, entry)) for entry in entries]
        for entry, ended in zip(entries, ends, strict=True):
            self.attempt(entry, partial(_return_tokens, entry, ended, deadline))

    def attempt(self, entry: KeyEntry, act: Callable[[], T]) -> T | None:
        """Do this, and keep what goes wrong for the end: it is no reason not to do it for the other keys."""
        try:
            return act()
        except Exception as error:  # noqa: BLE001  see above
            message = "tokens of %s were not given back; the others are"
            log_event("limiter.not_closed", message, named(entry.key), error=error, key=entry.key)
            self.wrong = self.wrong or error
            return None

    def _close(self, entry: KeyEntry) -> threading.Event | None:
        """Fail the waiters of this key; return what is set when its request in flight has ended, if there is one."""
        ended = threading.Event()
        closer = Waiter(0, NO_WAIT, ended)
        return ended if entry.locked(lambda: entry.reservoir.lifecycle.close(self._error, closer)) else None


def _return_tokens(entry: KeyEntry, ended: threading.Event | None, deadline: float) -> None:
    if ended is not None and not entry.sender.sends(entry.reservoir.state.in_flight):
        ended.wait(max(0.0, deadline - time.monotonic()))
    try:
        if (fetch := entry.locked(lambda: entry.reservoir.lifecycle.last_ask(entry.clock()))) is not None:
            key_entry.fetch(entry, fetch)
        if (back := entry.locked(entry.reservoir.lifecycle.drain)) is not None:
            store_calls.give_back(entry, back)
    except StoreUnavailable as error:
        message = "tokens of %s were not given back; they will expire: %s"
        log_event("tokens.not_returned", message, named(entry.key), error, key=entry.key, reason=str(error))

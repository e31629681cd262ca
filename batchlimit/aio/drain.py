"""How the keys of a limiter end: waiters fail, and all tokens go back to the store."""

import asyncio
import contextlib
from collections.abc import Sequence

from batchlimit.aio import store_calls
from batchlimit.aio.home import Home
from batchlimit.aio.key_entry import KeyEntry
from batchlimit.base.waiting import NO_WAIT
from batchlimit.events import log_event, named
from batchlimit.reservoir.waiter import NOBODY, Waiter

_PATIENCE = 2.0
"""How long (s) a closing limiter waits for the answers that are under way, and then for its tokens to go back."""
_AT_ONCE = 64
"""Give-backs that are under way at the same time when a limiter with many keys is closed."""


class AsyncDrain:
    """Ends key entries; `wrong` is the first thing that went wrong, at whichever key."""

    def __init__(self, error: Exception) -> None:
        """`error`: what waiters get, and later callers."""
        self._error = error
        self.wrong: Exception | None = None

    def close(self, entry: KeyEntry) -> None:
        """Fail the waiters of this key; `run` follows when its request in flight has ended."""
        entry.reservoir.lifecycle.close(self._error, Waiter(0, NO_WAIT, NOBODY))
        entry.changed()
        entry.refill_gate.open()

    async def run(self, entries: Sequence[KeyEntry], home: Home, closing: "asyncio.Task[None] | None") -> None:
        """Return all tokens, as far as that can be done in time; `closing` is the task that closes the limiter."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await home.finish(closing)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                for first in range(0, len(entries), _AT_ONCE):
                    some = entries[first : first + _AT_ONCE]
                    outcomes = await asyncio.gather(*map(_return_tokens, some), return_exceptions=True)
                    for entry, outcome in zip(some, outcomes, strict=True):
                        if isinstance(outcome, Exception):  # which is no reason to keep the others'
                            message = "tokens of %s were not given back; the others are"
                            log_event("limiter.not_closed", message, named(entry.key), error=outcome, key=entry.key)
                            self.wrong = self.wrong or outcome


async def _return_tokens(entry: KeyEntry) -> None:
    """Return all tokens of a key, after one last request for what is owed."""
    fetch = entry.reservoir.lifecycle.last_ask(entry.home.clock())
    if fetch is not None and (task := store_calls.fetch_by_task(entry, fetch)) is not None:
        await asyncio.wait([task])
        await asyncio.sleep(0)  # its answer is taken in by a callback
    if (back := entry.reservoir.lifecycle.drain()) is not None:
        await store_calls.give_back(entry, back)

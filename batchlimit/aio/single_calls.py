"""Tasks that are answered by a single ask each, for a key that is not in use: see keyspace/single_ask.py."""

import asyncio
from collections.abc import Callable
from functools import partial

from batchlimit.aio import store_calls
from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.aio.key_entry import KeyEntry, hear
from batchlimit.blocking import room_to_leave
from batchlimit.bucket.messages import Ask, Grant
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.single_ask import SingleAsk
from batchlimit.keyspace.single_asks import SingleAsks
from batchlimit.overrides.code import Code


class SingleCalls:
    """Sends single asks on a loop, and wakes their callers with the answers. A registry has one of these.

    Args:
        asks: those of the limiter that are in flight.
        store: where to send them.
        clock: returns seconds.
        idle: is called with the instant at which to forget the key that an ask has left dormant (inf: no need).
    """

    __slots__ = ("_asks", "_clock", "_idle", "_store")

    def __init__(
        self,
        asks: SingleAsks[KeyEntry],
        store: GuardedStore,
        clock: Callable[[], float],
        idle: Callable[[float], None],
    ) -> None:
        self._asks, self._store, self._clock, self._idle = asks, store, clock, idle

    def __repr__(self) -> str:
        return f"<SingleCalls by {self._asks!r}>"

    def ask(self, key: str, code: Code, cost: int, until: float) -> SingleAsk | None:
        """Send one ask for a call at a checked key that is not in use; None: the call needs its entry.

        To be followed by a wait for `who`, and by `leave` if that is interrupted.
        """
        single = self._asks.made(key, code, cost, until)
        if single is None:
            return None
        room_to_leave()
        if (ask := self._asks.begin(single)) is None:
            return None
        single.who = asyncio.get_running_loop().create_future()
        self._send(single, ask)
        return single

    def leave(self, single: SingleAsk) -> None:
        """Let the tokens of a caller who does not wait any more be for others."""
        if single in self._asks:
            self._asks.entry_of(single)
        if single.entry is not None:
            single.entry.leave(single.caller)

    def _send(self, single: SingleAsk, ask: Ask) -> None:
        outcome = None
        try:
            is_sent = self._store.send(single.name, single.quota, ask, partial(self._heard, single))
        except Exception as error:  # noqa: BLE001  a store of the user's own may raise whatever it likes
            is_sent, outcome = False, store_calls.uncounted(error)
        except BaseException:  # a signal handler of the user's own: no answer will come
            self._asks.give_up(single)
            raise
        if not is_sent:
            self._hear(single, outcome)

    def _heard(self, single: SingleAsk, outcome: Grant | StoreUnavailable | None) -> None:
        idle_at = self._asks.settle(single, outcome, self._clock()) if isinstance(outcome, Grant) else None
        if idle_at is None:
            self._hear(single, outcome)
            return
        self._idle(idle_at)
        if not single.who.done():
            single.who.set_result(None)

    def _hear(self, single: SingleAsk, outcome: Grant | StoreUnavailable | None) -> None:
        """Give the answer to the key's entry; None: a task of the entry is to ask."""
        hear(self._asks.entry_of(single), single.fetch, outcome)

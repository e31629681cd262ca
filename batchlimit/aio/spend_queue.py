"""The spends of tasks, sent together: what is asked in one turn of the event loop goes in one call."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import Context
from functools import partial
from itertools import repeat
from typing import Any

from batchlimit.aio import store_calls
from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.aio.key_entry import KeyEntry
from batchlimit.base.redaction import shown
from batchlimit.base.waking import HEARTBEAT
from batchlimit.bucket.messages import Groups, SpendReply
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.key_spend import KeySpend, Outcome, of_each
from batchlimit.keyspace.spending import Spending

Start = Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]
Begun = Sequence[KeySpend]
Call = tuple[Begun, "asyncio.Future[Outcome]"]
"""The spends of one caller, and what it waits for."""
Heard = Callable[[Begun, "asyncio.Future[Outcome]", Outcome], None]
_MOST = 128
"""Buckets that go in one call, unless one group has more: a server takes 8 us for each, and others wait."""


class SpendQueue:
    """Sends the spends of one limiter, at the end of the turn in which they came."""

    def __init__(self, store: GuardedStore, spending: Spending[KeyEntry], start: Start, heard: Heard) -> None:
        """`spending` gets the revision of the overrides, `heard` what became of a call; `start` starts a task."""
        self._store, self._spending, self._start, self._heard = store, spending, start, heard
        self._waiting: list[Call] = []
        self._loop: asyncio.AbstractEventLoop | None = None  # whose turn is to send them
        self._lost_at = 0.0  # by its time: a signal handler that raised may have made it forget to

    def __repr__(self) -> str:
        return f"<SpendQueue of {self._store!r}: {len(self._waiting)} wait>"

    def clear(self) -> None:
        """Forget what was not sent: its loop is closed."""
        self._waiting, self._loop = [], None

    def spend(self, begun: Begun) -> "asyncio.Future[Outcome]":
        """Spend, and return what its caller waits for: `heard` has to settle it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append((begun, answer))
        if loop is not self._loop or self._lost_at < loop.time():
            loop.call_soon(self._flush, context=Context())
            self._lost_at = loop.time() + HEARTBEAT
            self._loop = loop  # last: a signal handler may raise between any two lines
        return answer

    def _flush(self) -> None:
        self._loop = None
        waiting, self._waiting = self._waiting, []
        try:
            while waiting:
                self._send(portion := _portion(waiting, _MOST if self._store.spends_together else 1))
                del waiting[: len(portion)]
        finally:
            if waiting:
                self._tell(zip(waiting, repeat(store_calls.CANCELLED)))

    def _send(self, calls: Sequence[Call]) -> None:
        """Send in this turn of the loop if it can be, else by a task."""
        groups, looks = _groups(calls), self._spending.looks
        try:
            is_sent = self._store.send_spend(groups, looks, partial(self._told, calls))
        except Exception as error:  # noqa: BLE001  a store of the user's own may raise whatever it likes
            self._told(calls, store_calls.uncounted(error))
            return
        if not is_sent:
            self._send_by_task(calls)

    def _send_by_task(self, calls: Sequence[Call]) -> None:
        work = store_calls.outcome(self._store.spend, _groups(calls), self._spending.looks)
        try:
            task = self._start(work)
        except Exception as error:  # noqa: BLE001  a task factory of the user's own
            self._told(calls, store_calls.uncounted(error))
            return
        task.add_done_callback(partial(self._done, calls))

    def _done(self, calls: Sequence[Call], task: "asyncio.Task[Any]") -> None:
        reply = store_calls.CANCELLED if task.cancelled() or task.exception() is not None else task.result()
        if not isinstance(reply, StoreUnavailable) and not _answers(reply, calls):
            reply = store_calls.uncounted(TypeError(f"an answer that is no SpendReply to these: {shown(reply)}"))
        self._told(calls, reply)

    def _told(self, calls: Sequence[Call], reply: SpendReply | StoreUnavailable | None) -> None:
        if reply is None:
            self._send_by_task(calls)
        elif isinstance(reply, StoreUnavailable):
            self._store.spends_together &= reply.code != "CROSSSLOT"
            self._tell(zip(calls, repeat(of_each(reply, _groups(calls)))))
        else:
            self._spending.hear(reply.rules)
            self._tell(zip(calls, reply.groups, strict=True))

    def _tell(self, those: Iterator[tuple[Call, Outcome]]) -> None:
        try:
            for (begun, answer), outcome in those:
                self._heard(begun, answer, outcome)
        except BaseException:  # a signal handler of the user's own: the others get theirs in the next turn
            asyncio.get_running_loop().call_soon(self._tell, those, context=Context())
            raise


def _portion(waiting: Sequence[Call], most: int) -> Sequence[Call]:
    """Return the first of them, with no more buckets than that, or one call."""
    calls = buckets = 0
    for begun, _ in waiting:
        buckets += len(begun)
        if calls and buckets > most:
            break
        calls += 1
    return waiting[:calls]


def _groups(calls: Sequence[Call]) -> Groups:
    return [[each.message for each in begun] for begun, _ in calls]


def _answers(reply: object, calls: Sequence[Call]) -> bool:
    """Whether it is an answer to all of these: a store of the user's own may say whatever it likes."""
    if not isinstance(reply, SpendReply) or len(reply.groups) != len(calls):
        return False
    for told, (begun, _) in zip(reply.groups, calls, strict=True):
        if told is not None and len(told) != len(begun):
            return False
    return True

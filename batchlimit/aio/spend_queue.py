"""The spends of tasks, sent together: what is asked in one turn of the event loop goes in one call."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import Context
from functools import partial
from typing import Any

from batchlimit.aio import store_calls
from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.aio.key_entry import KeyEntry
from batchlimit.base.redaction import shown
from batchlimit.base.waking import HEARTBEAT
from batchlimit.bucket.messages import Spend, SpendReply
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.key_spend import Outcome, of_each
from batchlimit.keyspace.spending import Spending

Start = Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]
Group = Sequence[Spend]
Heard = Callable[[Outcome], None]
_MOST = 128
"""Buckets that go in one call, unless one group has more: a server takes 8 us for each, and others wait."""


class SpendQueue:
    """Sends the spends of one limiter, at the end of the turn in which they came."""

    def __init__(self, store: GuardedStore, spending: Spending[KeyEntry], start: Start) -> None:
        """`spending` gets the revision of the overrides; `start` starts a task."""
        self._store, self._spending, self._start = store, spending, start
        self._waiting: list[tuple[Group, Heard]] = []
        self._loop: asyncio.AbstractEventLoop | None = None  # whose turn is to send them
        self._lost_at = 0.0  # by its time: a signal handler that raised may have made it forget to

    def __repr__(self) -> str:
        return f"<SpendQueue of {self._store!r}: {len(self._waiting)} wait>"

    def takes(self, buckets: int) -> bool:
        """Whether the store can spend at so many buckets, all or none."""
        return self._store.spends if buckets == 1 else self._store.spends_together

    def clear(self) -> None:
        """Forget what was not sent: its loop is closed."""
        self._waiting, self._loop = [], None

    def spend(self, group: Group, heard: Heard) -> None:
        """Spend, and call `heard` with what became of it."""
        self._waiting.append((group, heard))
        loop = asyncio.get_running_loop()
        if loop is not self._loop or self._lost_at < loop.time():
            loop.call_soon(self._flush, context=Context())
            self._lost_at = loop.time() + HEARTBEAT
            self._loop = loop  # last: a signal handler may raise between any two lines

    def _flush(self) -> None:
        self._loop = None
        waiting, self._waiting = self._waiting, []
        try:
            while waiting:
                self._send(portion := _portion(waiting, _MOST if self._store.spends_together else 1))
                del waiting[: len(portion)]
        finally:
            _tell(waiting, [store_calls.CANCELLED] * len(waiting))

    def _send(self, some: Sequence[tuple[Group, Heard]]) -> None:
        """Send in this turn of the loop if it can be, else by a task."""
        groups, looks = [group for group, _ in some], self._spending.looks
        try:
            is_sent = self._store.send_spend(groups, looks, partial(self._told, some))
        except Exception as error:  # noqa: BLE001  a store of the user's own may raise whatever it likes
            self._told(some, store_calls.uncounted(error))
            return
        if not is_sent:
            self._send_by_task(some)

    def _send_by_task(self, some: Sequence[tuple[Group, Heard]]) -> None:
        work = store_calls.outcome(self._store.spend, [group for group, _ in some], self._spending.looks)
        try:
            task = self._start(work)
        except Exception as error:  # noqa: BLE001  a task factory of the user's own
            self._told(some, store_calls.uncounted(error))
            return
        task.add_done_callback(partial(self._done, some))

    def _done(self, some: Sequence[tuple[Group, Heard]], task: "asyncio.Task[Any]") -> None:
        error = task.exception() if not task.cancelled() else None
        self._told(some, store_calls.CANCELLED if task.cancelled() or error is not None else task.result())

    def _told(self, some: Sequence[tuple[Group, Heard]], reply: SpendReply | StoreUnavailable | None) -> None:
        if reply is None:
            self._send_by_task(some)
            return
        if not isinstance(reply, StoreUnavailable) and not _answers(reply, some):
            reply = store_calls.uncounted(TypeError(f"an answer that is no SpendReply to these: {shown(reply)}"))
        if isinstance(reply, StoreUnavailable):
            self._store.spends_together &= reply.code != "CROSSSLOT"
            _tell(some, [of_each(reply, [group for group, _ in some])] * len(some))
        else:
            self._spending.hear(reply.rules)
            _tell(some, reply.groups)


def _portion(waiting: Sequence[tuple[Group, Heard]], most: int) -> Sequence[tuple[Group, Heard]]:
    """Return the first of them, with no more buckets than that, or one group."""
    groups = buckets = 0
    for group, _ in waiting:
        buckets += len(group)
        if groups and buckets > most:
            break
        groups += 1
    return waiting[:groups]


def _answers(reply: object, some: Sequence[tuple[Group, Heard]]) -> bool:
    """Whether it is an answer to all of these: a store of the user's own may say whatever it likes."""
    if not isinstance(reply, SpendReply) or len(reply.groups) != len(some):
        return False
    return all(told is None or len(told) == len(group) for told, (group, _) in zip(reply.groups, some, strict=True))


def _tell(some: Sequence[tuple[Group, Heard]], outcomes: Sequence[Outcome]) -> None:
    _tell_on(zip(some, outcomes, strict=True))


def _tell_on(those: Iterator[tuple[tuple[Group, Heard], Outcome]]) -> None:
    try:
        for (_, heard), outcome in those:
            heard(outcome)
    except BaseException:  # a signal handler of the user's own: the others get theirs in the next turn
        asyncio.get_running_loop().call_soon(_tell_on, those, context=Context())
        raise

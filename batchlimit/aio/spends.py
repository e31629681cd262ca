"""Calls of tasks for keys that are not in use: they spend at the store, and no entry is made.

A caller that comes alone asks at once. Else all callers of one turn share a call, which a key that leases asks after.
"""

import asyncio
import contextlib
import math
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextvars import Context
from functools import partial
from itertools import accumulate, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from batchlimit.aio.guarded_store import CANCELLED
from batchlimit.base.key import check_key
from batchlimit.base.redaction import shown
from batchlimit.base.waking import HEARTBEAT
from batchlimit.bucket.messages import Groups, SpendReply
from batchlimit.errors import LimiterClosed, StoreUnavailable
from batchlimit.keyspace.base_registry import CLOSED
from batchlimit.keyspace.spending import MESSAGE, KeySpend, Outcome, Settled, Spending, is_charged, of_each
from batchlimit.reservoir.admission import AdmissionResult
from batchlimit.stores.outage import uncounted

if TYPE_CHECKING:
    from batchlimit.aio.registry import Registry

Start = Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]
Call = tuple[Sequence[KeySpend], "asyncio.Future[Outcome]"]
"""The spends of one caller, and what it waits for."""
_BEGUN = itemgetter(0)
_FEW, _MOST = 32, 128
"""Buckets that go in one call: half of those that wait, within these bounds, unless one group has more. So the server
runs one call while the next is written: 64 tasks decide a fifth to a third more often than in one call. And others wait
for a server that takes 8 us for each."""


class Spends:
    """Spends for the callers of one limiter; what cannot be done so is for an entry of the key."""

    def __init__(self, registry: "Registry", spending: Spending, idle: Callable[[float], None], start: Start) -> None:
        """`idle` is called with the instant at which to forget a key (inf: no need); `start` starts a task."""
        self._registry, self._spending, self._idle, self._start = registry, spending, idle, start
        self._store, self._clock = registry.store, registry.clock
        self.clear()

    def clear(self) -> None:
        """Forget what was not sent: its loop is closed."""
        self._waiting: list[Call] = []
        self._loop: asyncio.AbstractEventLoop | None = None  # whose turn is to send them
        self._lone: asyncio.Future[Outcome] | None = None  # what the last caller waits for, if it came alone
        self._lost_at = 0.0  # a signal handler that raised may have made it forget to

    async def one(self, key: str, cost: int, until: float, priority: int = 1) -> Settled | None:
        """Settle a call at a key that is not in use; raises what went wrong. None: by its entry."""
        if not self._store.spends or self._registry.closed:
            return None
        check_key(key)
        if (spend := self._spending.begin_one(key, cost)) is None:
            if self._waiting and self._spending.is_asked(key):
                self._flush()  # who came before asks before
            return None
        if (outcome := await self._spend([spend])) is not None and spend.spent.is_charged:
            return spend
        return await self.in_vain(spend, outcome, until, priority, joins=True)

    async def spend(self, costs: Mapping[str, int]) -> tuple[Sequence[KeySpend], Outcome]:
        """Spend at checked keys; return what came of it, which is nothing where a key needs its entry."""
        if (begun := self._spending.begin(costs)) is not None:
            return begun, await self._spend(begun)
        if self._waiting and any(map(self._spending.is_asked, costs)):
            self._flush()  # who came before asks before
        return (), None

    async def _spend(self, begun: Sequence[KeySpend]) -> Outcome:
        """Ask the store, at once if the last caller came alone and has its answer; return what it says."""
        loop = asyncio.get_running_loop()
        call: Call = begun, loop.create_future()
        now = begun[0].sent
        is_alone = self._lone is not None and self._lone.done() and not self._waiting
        if not is_alone and (loop is not self._loop or self._lost_at < now):
            loop.call_soon(self._flush, context=Context())
            self._lost_at = now + HEARTBEAT
            self._loop = loop  # last: a signal handler may raise between any two lines
        try:
            if is_alone:
                self._lone = call[1]
                self._send([call])
            else:
                self._waiting.append(call)  # last: a call that is nested too deep fails before
            outcome = await call[1]
        except BaseException:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                if not call[1].cancel() and not call[1].cancelled():  # it came before its caller could wake
                    self._undo(begun, call[1].result())
            raise
        if self._registry.closed:
            raise LimiterClosed(CLOSED)  # whoever closes the limiter meanwhile fails its callers
        return outcome

    def _flush(self) -> None:
        self._loop = None
        waiting, self._waiting = self._waiting, []
        is_lone = len(waiting) == 1 and (self._lone is None or self._lone.done())
        self._lone = waiting[0][1] if is_lone else None
        try:
            most = min(_MOST, max(_FEW, len(waiting) // 2)) if self._store.spends_together else 1
            while waiting:
                self._send(portion := _portion(waiting, most))
                del waiting[: len(portion)]
        finally:
            if waiting:
                self._tell(zip(waiting, repeat(CANCELLED)))

    def _send(self, calls: Sequence[Call]) -> None:
        """Send in this turn of the loop if it can be, else by a task."""
        groups, looks = _groups(calls), self._spending.looks
        try:
            is_sent = self._store.send_spend(groups, looks, partial(self._told, calls, looks))
        except Exception as error:  # noqa: BLE001  a store of the user's own may raise whatever it likes
            self._told(calls, looks, uncounted(error))
            return
        if not is_sent:
            self._send_by_task(calls, looks)

    def _send_by_task(self, calls: Sequence[Call], looks: bool) -> None:
        groups, spend = _groups(calls), partial(self._store.spender.spend, look=looks, within=self._store.deadline)
        work = self._store.outcome(self._store.call, groups[0][0].key, spend, groups)
        try:
            task = self._start(work)
        except Exception as error:  # noqa: BLE001  a task factory of the user's own
            self._told(calls, looks, uncounted(error))
            return
        task.add_done_callback(partial(self._done, calls, looks))

    def _done(self, calls: Sequence[Call], looks: bool, task: "asyncio.Task[Any]") -> None:
        reply = CANCELLED if task.cancelled() or task.exception() is not None else task.result()
        if not isinstance(reply, StoreUnavailable) and not _answers(reply, calls):
            reply = uncounted(TypeError(f"an answer that is no SpendReply to these: {shown(reply)}"))
        self._told(calls, looks, reply)

    def _told(self, calls: Sequence[Call], looks: bool, reply: SpendReply | StoreUnavailable | None) -> None:
        if reply is None:
            self._send_by_task(calls, looks)
        elif isinstance(reply, StoreUnavailable):
            self._store.spends_together &= reply.code != "CROSSSLOT"
            self._tell(zip(calls, repeat(of_each(reply, _groups(calls)))))
        else:
            if looks:
                self._spending.hear(reply.rules)
            self._tell(zip(calls, reply.groups, strict=True))

    def _tell(self, those: Iterator[tuple[Call, Outcome]]) -> None:
        """Settle calls, and wake their callers."""
        kept: dict[str, bytes] = {}
        begun: Sequence[KeySpend] = ()
        now, answer = -math.inf, None
        try:
            now = self._clock()
            for (begun, answer), outcome in those:
                in_time = self._spending.hear_of(begun, outcome, now, kept)
                if is_awaited := not answer.done():
                    answer.set_result(in_time)
                if in_time is None or not is_awaited:
                    self._undo(begun, outcome)
        except BaseException:  # a signal handler of the user's own: the others get theirs in the next turn
            asyncio.get_running_loop().call_soon(self._tell, those, context=Context())
            if answer is not None and not answer.done():  # its caller asks again
                answer.set_result(None)
                self._spending.end(begun)
            raise
        finally:
            if (idle_at := self._spending.keep(kept, now)) < math.inf:
                self._idle(idle_at)

    def _undo(self, begun: Sequence[KeySpend], outcome: Outcome) -> None:
        """Take back what was charged for a caller that was cancelled, or asks again because the answer came late."""
        if is_charged(outcome):
            with contextlib.suppress(LimiterClosed):
                self._registry.refund_all({each.key: each.message.cost for each in begun})

    async def in_vain(
        self, spend: KeySpend, outcome: Outcome, until: float, priority: int = 1, *, joins: bool = False
    ) -> AdmissionResult | None:
        """Have the key come into use, and its entry take in what came of the spend.

        Where it is in use its caller `joins` the queue, ahead of all who came later. None: the call begins anew.
        """
        if outcome is None and spend.place not in self._registry.entries:
            return None
        entry, fetch, cost = self._registry.live_entry(spend.key), self._spending.fetch(spend), spend.message.cost
        caller = None if outcome is None else entry.adopt(fetch, cost, until, spend.number, priority)
        if caller is None and joins:
            return await entry.join(cost, until, spend.number, prompt=True, priority=priority).result()
        if caller is None:
            return None
        entry.report(fetch, outcome if isinstance(outcome, StoreUnavailable) else spend.refusal())
        return await caller.result()


def _portion(waiting: Sequence[Call], most: int) -> Sequence[Call]:
    """Return the first of them, with no more buckets than that, or one call."""
    buckets = list(accumulate(map(len, map(_BEGUN, waiting[:most]))))
    return waiting[: max(1, bisect_right(buckets, most))]


def _groups(calls: Sequence[Call]) -> Groups:
    return [list(map(MESSAGE, begun)) for begun, _ in calls]


def _answers(reply: object, calls: Sequence[Call]) -> bool:
    """Whether it is an answer to all of these: a store of the user's own may say whatever it likes."""
    if not isinstance(reply, SpendReply) or len(reply.groups) != len(calls):
        return False
    for told, (begun, _) in zip(reply.groups, calls, strict=True):
        if told is not None and len(told) != len(begun):
            return False
    return True

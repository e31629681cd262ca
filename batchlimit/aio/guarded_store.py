"""The store of a limiter, with a deadline for each call and a circuit breaker."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable
from contextvars import Context, Token
from typing import Any, Self, TypeVar, TypeVarTuple

from tenacity import AsyncRetrying

from batchlimit.bucket.messages import Ask, Grant, Groups, SpendReply
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.async_direct import Reply
from batchlimit.stores.client.deadline import WATCH
from batchlimit.stores.guard import Guard
from batchlimit.stores.outage import Breaker, Outages, Probe, unavailable
from batchlimit.stores.protocols import AsyncSender, AsyncStore, Sent

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Took = Callable[[T | StoreUnavailable | None], None]
"""Hears what came of a call that was sent; None: nothing did."""
Hear = Callable[["asyncio.Future[Any]"], None]
CANCELLED = BucketUnavailable("the request was cancelled")
_ROUNDS = 10
"""Rounds of the event loop that a call still gets when its time is over. A loop that was blocked has not yet read an
answer that came in time: one round reads it, the next parses it, and the third wakes its task. Finding a connection and
sending took some rounds before. An idle loop spends no time on them."""
_TICK = 1e-6  # what is left of a sum that ought to be 0


class GuardedStore(Guard):
    """Calls a store so that each call returns, or raises StoreUnavailable, within `deadline` seconds.

    After three consecutive failures the circuit breaker of that part of the store opens. A task then probes the part:
    after about 0.1 s, and again after 0.1 to 1.1 s each, until it answers.
    """

    def __init__(self, store: AsyncStore, deadline: float) -> None:
        super().__init__(store, deadline)
        self._inherited: object = None
        self._sender = store if isinstance(store, AsyncSender) and self._remote.is_prompt else None
        self._begin()

    def _begin(self) -> None:
        self._has_answered = self._is_stopped = False
        self._outages = Outages(lambda: self.address)
        self._tasks: set[asyncio.Task[None]] = set()
        self.sent: dict[asyncio.Future[Any], tuple[float, Hear]] = {}  # what was sent when, and who takes its answer
        self._looks_at = -math.inf  # when a timer gives up what is late; a signal handler may make it forget to

    def send(self, key: str, quota: Quota, ask: Ask, took: Took[Grant]) -> bool:
        """Ask in this turn of the loop, and tell `took` the outcome. False, or None as the outcome: use `take`."""
        sender = self._sender
        return sender is not None and self._send(key, lambda: sender.send(key, quota, ask), took)

    def send_spend(self, groups: Groups, look: bool, took: Took[SpendReply]) -> bool:
        """Spend in this turn of the loop, as `send` does. The first key says which part of the store is asked."""
        sender, key = self._sender, groups[0][0].key
        return sender is not None and self._send(
            key, lambda: sender.send_spend(groups, look=look, within=self.deadline), took
        )

    def _send(self, key: str, send: Callable[[], Sent[T] | None], took: Took[T]) -> bool:
        part = self._remote.part(key)
        if self._outages.breakers[part].opened_at is not None or (sent := send()) is None:
            return False
        answer, read = sent
        at, began = answer.get_loop().time(), time.perf_counter()  # uvloop's time has whole milliseconds

        def hear(answer: "asyncio.Future[Any]") -> None:
            if answer not in self.sent:
                return
            found: list[T | StoreUnavailable | None] = []  # as it stays where a signal handler of the user's own raises
            try:
                try:
                    del self.sent[answer]
                    self._outages.took(time.perf_counter() - began)
                    found.append(self._outcome(part, key, answer, read))
                finally:
                    took(found.pop() if found else None)  # no variable keeps it: a traceback leads here
            except Exception as error:  # noqa: BLE001  of the user's own, such as a sizer: others on the connection hear
                answer.get_loop().call_exception_handler({"message": f"{took} failed", "exception": error})

        self.sent[answer] = at, hear
        if isinstance(answer, Reply):
            answer.hear = hear
        else:
            answer.add_done_callback(hear, context=Context())  # what a request has set in its own is not ours
        if self._looks_at < at:
            self._looks_at = at
            self._give_up_late(at)
        return True

    def _give_up_late(self, instant: float) -> None:
        """Give up what has no answer by its deadline, after some rounds; come again for the next one."""
        if instant != self._looks_at:  # another timer comes instead
            return
        loop, late = asyncio.get_running_loop(), list[tuple[asyncio.Future[Any], Hear]]()
        self._looks_at, now = -math.inf, max(instant, loop.time())
        for answer, (at, hear) in self.sent.items():
            if (due := at + self.deadline) > now:
                loop.call_at(due, self._give_up_late, due, context=Context())
                self._looks_at = due
                break
            late.append((answer, hear))
        if late:  # one that is done already was not heard: a signal handler raised when it came
            Countdown(0.0, lambda: [each.cancel() or hear(each) for each, hear in late])

    def _outcome(
        self, part: str, key: str, answer: "asyncio.Future[Any]", read: Callable[[Any], T | None]
    ) -> T | StoreUnavailable | None:
        try:
            if answer.cancelled():
                raise self.late(self.deadline)
            found = read(answer)
        except Exception as error:  # noqa: BLE001  a store of the user's own may raise whatever it likes
            return self._counted(part, key, error)
        if found is not None:
            self._has_answered = True
            if self._outages.breakers[part].consecutive_failures:
                self._outages.answered(part)
        return found

    def after_fork(self) -> None:
        """In a forked child: begin without tasks, and with closed circuit breakers."""
        self._inherited = (self._inherited, self._tasks, self.sent)  # never let go of: they are another loop's
        self._begin()
        self._store.after_fork()

    def renew(self) -> None:
        """After the loop was closed: its probers are gone, so begin with closed circuit breakers."""
        self._begin()

    async def stop(self) -> None:
        """End all probers."""
        self._is_stopped = True
        probers = list(self._tasks)
        for each in probers:
            each.cancel()
        await asyncio.gather(*probers, return_exceptions=True)

    async def call(self, key: str, work: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Call a function of the store for a key, within the deadline and past the circuit breaker."""
        part = self._remote.part(key)
        breaker = self._outages.breakers[part]
        if breaker.opened_at is not None and not self._stands_in(part, key):
            raise self._outages.refusal(part)
        began = time.perf_counter()
        try:
            result = await self._bounded(breaker, work, *args)
        except Exception as error:
            found = self._counted(part, key, error)
            if found is error:
                raise
            raise found from error
        finally:
            self._outages.took(time.perf_counter() - began)
        self._answered(part)
        return result

    async def outcome(self, call: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T | StoreUnavailable:
        """Return what a call of the store says, or what is wrong with it: the loop would complain of a failed task."""
        try:
            return await call(*args)
        except StoreUnavailable as error:
            return error
        except Exception as error:  # noqa: BLE001  callers know StoreUnavailable alone, whatever a store of theirs raises
            return unavailable(error)

    async def _bounded(self, breaker: Breaker, work: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        seconds, connecting = self.deadline, self._to_connect(breaker)
        if not self._remote.is_prompt:  # it does not tell which is which
            seconds, connecting = seconds + (0.0 if breaker.is_failing else connecting), 0.0
        try:
            async with CallTimeout(seconds, connecting, lambda: breaker.is_failing):
                return await work(*args)
        except TimeoutError as error:
            raise self.late(seconds) from error

    def _failed(self, part: str, key: str, error: StoreUnavailable) -> None:
        before = self._outages.breakers[part].error
        if before is None or error.__cause__ is None or before.__cause__ is not error.__cause__:
            super()._failed(part, key, error)  # else many calls were on one connection: that it ended is one failure

    def _started(self, probe: Probe) -> Callable[[], bool]:
        work = self._probe(probe)
        try:
            prober = asyncio.get_running_loop().create_task(work, name="batchlimit-prober", context=Context())
        except BaseException:
            work.close()
            raise
        self._tasks.add(prober)  # a loop itself keeps no task alive
        prober.add_done_callback(self._tasks.discard)
        return lambda: not prober.done()

    async def _probe(self, probe: Probe) -> None:
        """Ask whether the part is back, until it is."""
        me: Any = asyncio.current_task()

        async def look() -> None:
            if me.cancelling():  # `wait_for` in redis-py sometimes loses a cancellation in Python 3.11
                raise asyncio.CancelledError
            if probe.is_needed:
                async with CallTimeout(self._connecting + self.deadline):
                    await self._remote.probe(probe.key)

        await asyncio.sleep(probe.pause)
        with contextlib.suppress(Exception):  # this key alone is not to be served
            await AsyncRetrying(sleep=asyncio.sleep, **probe.retries)(look)
        if probe.is_needed:
            self._answered(probe.part)


class Countdown:
    """Calls `over` when the seconds are over, and so are those rounds; unless it is stopped before.

    One of 0 seconds has the rounds alone: a call that has ended by then does not need to stop it.
    """

    __slots__ = ("_handle", "_loop", "_over", "_rounds")

    def __init__(self, seconds: float, over: Callable[[], object]) -> None:
        self._over, self._rounds = over, _ROUNDS
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._loop.call_later(seconds, self._run_out)

    def stop(self) -> None:
        """Let it be."""
        self._handle.cancel()

    def _run_out(self) -> None:
        self._rounds -= 1
        if self._rounds >= 0:
            self._handle = self._loop.call_soon(self._run_out)
        else:
            self._over()


class CallTimeout:
    """`async with CallTimeout(seconds)`: TimeoutError when they are over, as from asyncio.timeout.

    The time during which the call waits for a connection does not count (see stores/client/deadline.py), but for
    `connecting` seconds, or as soon as the store is `failing`: asked each `seconds`.
    """

    __slots__ = ("_connecting", "_countdown", "_failing", "_left", "_scope", "_seconds", "_token")

    def __init__(self, seconds: float, connecting: float = 0.0, failing: Callable[[], bool] = bool) -> None:
        self._seconds, self._connecting, self._failing = seconds, connecting, failing
        self._scope = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        self._token: Token[Any] = WATCH.set(self)
        self._wind(0.0)
        await self._scope.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._countdown.stop()
        WATCH.reset(self._token)
        await self._scope.__aexit__(*error)

    def pause(self) -> None:
        """Let the call wait for a connection, or open one."""
        self._countdown.stop()
        self._wind(self._connecting)

    def resume(self) -> None:
        """From here on the time is the server's."""
        self._countdown.stop()
        self._wind(0.0)

    def _wind(self, left: float) -> None:
        self._left = left  # for how long yet it may wait for a connection
        self._countdown = Countdown(self._seconds, self._over)

    def _over(self) -> None:
        if (left := self._left - self._seconds) > _TICK and not self._failing():
            self._wind(left)
        else:
            self._scope.reschedule(asyncio.get_running_loop().time())

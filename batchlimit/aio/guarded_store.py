"""What stands between a limiter and its store: a time budget for each call, and a breaker for when it is away."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, TypeVar

from tenacity import AsyncRetrying, retry_if_exception

from batchlimit.aio.call_timeout import CallTimeout, Countdown
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.clock import steady
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.statistics import Health
from batchlimit.stores.breaker import Breaker, Breakers
from batchlimit.stores.outage import (
    ANY,
    BACKOFF,
    addressed,
    circuit_open,
    first_wait,
    is_away,
    say_away,
    say_back,
    unavailable,
)
from batchlimit.stores.protocols import AsyncRemote, AsyncSender, AsyncStore
from batchlimit.stores.timeouts import Timeouts

T = TypeVar("T")


class GuardedStore(Timeouts):
    """Calls a store so that each call returns, or raises StoreUnavailable, within `deadline` seconds.

    A part of the store that failed three times in a row is not asked any more, until one of the probes that a task of
    their own sends has come through: after about 0.1 s, and then after 0.1 to 1.1 s each.
    """

    def __init__(self, store: AsyncStore, deadline: float) -> None:
        super().__init__(store, deadline)
        self._store = store
        self._inherited: object = None
        self._remote = store if isinstance(store, AsyncRemote) else _Whole(store)
        self._sender = store if isinstance(store, AsyncSender) and self._remote.is_prompt else None
        self._begin()

    def _begin(self) -> None:
        self._has_answered = False
        self._breakers = Breakers()
        self._probers: dict[str, tuple[float | None, asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Guard of {self._store!r}: {self._breakers}>"

    @property
    def health(self) -> Health:
        """How the store has been."""
        return self._breakers.health

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        return await self._call(key, lambda: self._store.take(key, quota, ask))

    def send(
        self, key: str, quota: Quota, ask: Ask, took: "Callable[[Grant | StoreUnavailable | None], None]"
    ) -> "asyncio.Future[Any] | None":
        """Ask in this turn of the loop, without a task; None: that cannot be now, so `take` it is.

        `took` hears what came of it, when what is returned is done; None: nothing did, so `take` says why.
        """
        part = self._remote.part(key)
        if self._sender is None or self._breakers.of(part).since is not None:
            return None
        if (answer := self._sender.send(key, quota, ask)) is None:
            return None
        countdown = Countdown(self._deadline, answer.cancel)

        def hear(answer: "asyncio.Future[Any]") -> None:
            countdown.stop()
            took(self._outcome(part, key, answer))

        answer.add_done_callback(hear, context=Context())  # what a request has set in its own is not ours
        return answer

    def _outcome(self, part: str, key: str, answer: "asyncio.Future[Any]") -> Grant | StoreUnavailable | None:
        assert self._sender is not None
        try:
            if answer.cancelled():
                raise self._too_late(self._deadline)
            grant = self._sender.receive(answer)
        except Exception as error:  # noqa: BLE001  a store of the user's own may raise whatever it likes
            return self._counted(part, key, error)
        if grant is not None:
            self._answered(part, self._breakers.of(part))
        return grant

    async def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        """See Store.give_back."""
        return await self._call(key, lambda: self._store.give_back(key, quota, back))

    async def peek(self, key: str, quota: Quota) -> Level:
        """See Store.peek."""
        return await self._call(key, lambda: self._store.peek(key, quota))

    def after_fork(self) -> None:
        """In a child: its tasks are to come, and nothing is known of the store."""
        self._inherited = (self._inherited, self._tasks)  # never let go of: they are another loop's
        self._begin()
        self._store.after_fork()

    def renew(self) -> None:
        """After a loop that was closed: its probers are gone, so nothing is known of the store."""
        self._begin()

    async def stop(self) -> None:
        """End all probers."""
        probers = list(self._tasks)
        for each in probers:
            each.cancel()
        await asyncio.gather(*probers, return_exceptions=True)

    async def _call(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        part = self._remote.part(key)
        breaker = self._breakers.of(part)
        if breaker.since is not None:
            self._look_for_prober(part, key)
            raise circuit_open(self.address, part, breaker, steady())
        try:
            result = await self._bounded(work, breaker)
        except Exception as error:
            found = self._counted(part, key, error)
            if found is error:
                raise
            raise found from error
        self._answered(part, breaker)
        return result

    def _counted(self, part: str, key: str, error: Exception) -> StoreUnavailable:
        """Count what a call ended with; return it as the error that callers know."""
        found = addressed(error if isinstance(error, StoreUnavailable) else unavailable(error), self.address)
        if isinstance(found, BucketUnavailable):
            self._answered(part, self._breakers.of(part))
        else:
            self._failed(part, key, found)
        return found

    async def _bounded(self, work: Callable[[], Awaitable[T]], breaker: Breaker) -> T:
        seconds, connecting = self._deadline, self._to_connect()
        if not self._remote.is_prompt:  # it does not tell which is which
            seconds, connecting = seconds + (0.0 if breaker.is_failing else connecting), 0.0
        try:
            async with CallTimeout(seconds, connecting, lambda: breaker.is_failing):
                return await work()
        except TimeoutError as error:
            raise self._too_late(seconds) from error

    def _too_late(self, seconds: float) -> StoreUnavailable:
        return StoreUnavailable(f"{self.address} did not answer in time ({seconds:g} s)")

    def _answered(self, part: str, breaker: Breaker) -> None:
        self._has_answered = True
        if breaker.in_a_row and (seconds := self._breakers.answered(part, steady())) is not None:
            say_back(self.address, part, seconds)

    def _failed(self, part: str, key: str, error: StoreUnavailable) -> None:
        before = self._breakers.of(part).error
        if before is not None and error.__cause__ is not None and before.__cause__ is error.__cause__:
            return  # many calls were on one connection: that it ended is one failure
        if self._breakers.failed(part, error, steady()):
            self._look_for_prober(part, key)
            say_away(self.address, part, error)

    def _look_for_prober(self, part: str, key: str) -> None:
        """Have somebody who asks whether the part is back: the one who did may have been cancelled with all others."""
        breaker = self._breakers.of(part)
        since, prober = self._probers.get(part, (None, None))
        if prober is not None and not prober.done() and since == breaker.since:
            return
        work = self._probe(part, key, breaker.plan_probe(first_wait(breaker.relapses), steady()))
        try:
            prober = asyncio.get_running_loop().create_task(work, name="batchlimit-prober", context=Context())
        except Exception:  # noqa: BLE001  a task factory of the user's own: callers find out for themselves
            work.close()
            self._breakers.answered(part, steady())
        else:
            self._probers[part] = (breaker.since, prober)
            self._tasks.add(prober)  # a loop itself keeps no task alive
            prober.add_done_callback(self._tasks.discard)

    async def _probe(self, part: str, key: str, pause: float) -> None:
        """Ask whether the part is back, by the key that failed, until it is; the first time after a pause (s)."""
        breaker = self._breakers.of(part)
        since = breaker.since

        async def look() -> None:
            if breaker.since == since:  # else somebody's ask came through; and what began since has its own prober
                async with CallTimeout(self._connecting + self._deadline):
                    await self._remote.probe(key)

        retrying = AsyncRetrying(
            retry=retry_if_exception(is_away),
            wait=lambda state: breaker.plan_probe(BACKOFF(state), steady()),
            sleep=asyncio.sleep,
            reraise=True,
        )
        await asyncio.sleep(pause)
        with contextlib.suppress(Exception):  # this key alone is not to be served
            await retrying(look)
        if breaker.since == since:
            self._answered(part, breaker)


class _Whole:
    """What is assumed of a store that says nothing of itself."""

    is_prompt = False

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    def part(self, key: str) -> str:
        return ""

    async def probe(self, key: str) -> None:
        await self._store.peek(key, ANY)

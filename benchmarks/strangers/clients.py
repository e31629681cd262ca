"""Clients that each have calls to make, one after the other: ours, and what else is done about a 429."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import NamedTuple

from batchlimit import AsyncConcurrencyLimiter, AsyncRateLimiter, Queue
from batchlimit.admission import AsyncAdmission
from batchlimit.bucket.messages import Ask, Grant, Groups, SpendReply
from batchlimit.integrations.pacing import Pacer
from batchlimit.integrations.told import observe
from batchlimit.laws import AIMD
from batchlimit.quota.quota import Quota
from batchlimit.stores.memory import AsyncMemoryStore, MemoryStore

CLIENTS, PROCESSES = 100, 10
KEY, QUOTA = "api.example.com", "100/s burst 10"
"""All that the provider gives anybody: how much of it strangers take, no quota can know."""
_ROUND_TRIP = 0.001
"""Seconds to our store."""


class Response(NamedTuple):
    """What the provider answers."""

    is_refused: bool
    headers: dict[str, str]


Send = Callable[[], Awaitable[Response]]
Client = Callable[[Send, int], Awaitable[None]]
"""Makes so many calls that succeed."""


def backoff(*, heeds: bool) -> Sequence[Client]:
    """Clients that wait twice as long after each 429, 0.5 to 8 s as SDKs do; or as long as the 429 says."""
    dice = Random(5)

    async def client(send: Send, calls: int) -> None:
        for _ in range(calls):
            wait = 0.5
            while (response := await send()).is_refused:
                told = observe(response.headers, 0.0).after if heeds else None
                await asyncio.sleep(told or wait * (1 - 0.25 * dice.random()))
                wait = min(8.0, 2 * wait)

    return [client] * CLIENTS


class PacedRate:
    """One client's bucket of few tokens; a call beyond it waits."""

    def __init__(self, rate: float) -> None:
        self.rate, self._free_at = rate, 0.0

    async def wait(self) -> None:
        """Wait for the next token."""
        loop = asyncio.get_running_loop()
        self._free_at = max(self._free_at, loop.time()) + 1 / self.rate
        await asyncio.sleep(self._free_at - 1 / self.rate - loop.time())


def adaptive() -> Sequence[Client]:
    """Clients with a token bucket each: its rate grows with each success, and is halved by a 429."""

    async def client(send: Send, calls: int) -> None:
        paced, changed = PacedRate(RATE_EACH), 0.0
        for _ in range(calls):
            await paced.wait()
            while (await send()).is_refused:
                now = asyncio.get_running_loop().time()
                if now > changed + 1 / paced.rate:
                    paced.rate, changed = max(0.02, paced.rate / 2), now
                await paced.wait()
            paced.rate += 0.02

    return [client] * CLIENTS


RATE_EACH = 1.0
_GROWS, _SHRINKS = 0.5, 0.8
"""Of telemetry. By 0.5 to 8 and 0.5 or 0.8 it gets 4 to 42 % of 429s in 78 to 363 s: never few of them soon."""


class Telemetry:
    """What the clients of all tell: once a second one rate for all of them grows, or shrinks if there was a 429."""

    def __init__(self) -> None:
        self.rate, self.refused = RATE_EACH * CLIENTS, 0

    async def run(self) -> None:
        """Look once a second."""
        while True:
            await asyncio.sleep(1.0)
            self.rate = self.rate * _SHRINKS if self.refused else self.rate + _GROWS
            self.refused = 0


def assisted() -> Sequence[Client]:
    """Clients with a token bucket each, whose rate follows what all of them have told."""
    telemetry = Telemetry()
    running: set[asyncio.Task[None]] = set()

    async def client(send: Send, calls: int) -> None:
        if not running:
            running.add(asyncio.ensure_future(telemetry.run()))
        paced = PacedRate(RATE_EACH)
        for _ in range(calls):
            refused = True
            while refused:
                paced.rate = telemetry.rate / CLIENTS
                await paced.wait()
                refused = (await send()).is_refused
                telemetry.refused += refused

    return [client] * CLIENTS


class FarStore(AsyncMemoryStore):
    """Buckets in memory, a round trip away; it counts what it is asked."""

    __slots__ = ("asked",)
    is_prompt = False

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.asked = 0

    async def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        """See Store.take."""
        self.asked += 1
        await asyncio.sleep(_ROUND_TRIP / 2)
        grant = await super().take(key, quota, ask)
        await asyncio.sleep(_ROUND_TRIP / 2)
        return grant

    async def spend(self, groups: Groups, *, look: bool = False, within: float = float("inf")) -> SpendReply:
        """See Spender.spend."""
        self.asked += 1
        await asyncio.sleep(_ROUND_TRIP / 2)
        reply = await super().spend(groups, look=look)
        await asyncio.sleep(_ROUND_TRIP / 2)
        return reply


class Fleet:
    """Our clients, ten in each of ten processes; as the transports do, but for the library of requests.

    Args:
        observes: whether what is left holds calls back.
        adapts: whether each process limits how many of its calls are under way by AIMD, whose drops are the 429s.
    """

    def __init__(self, *, observes: bool = False, adapts: bool = False) -> None:
        self._observes, self._adapts = observes, adapts
        self._buckets = MemoryStore(asyncio.get_running_loop().time)
        self.stores: list[FarStore] = []
        self.pauses = 0

    def clients(self) -> Sequence[Client]:
        """Make them."""
        return [client for _ in range(PROCESSES) for client in [self._process()] * (CLIENTS // PROCESSES)]

    def _process(self) -> Client:
        loop, store, pacer = asyncio.get_running_loop(), FarStore(self._buckets), Pacer(None, 600.0)
        self.stores.append(store)
        limiter = AsyncRateLimiter(store, QUOTA, clock=loop.time, deadline=1.0)
        permits = _by_process() if self._adapts else None

        async def pause(seconds: float) -> None:
            self.pauses += 1
            await limiter.pause(KEY, seconds)

        async def called(send: Send) -> Response:
            if permits is None:
                await limiter.acquire(KEY)
                return await send()
            permit = await AsyncAdmission(limiter, permits).admit(KEY, timeout=None)
            response = await send()
            permit.answered(429 if response.is_refused else 200)
            return response

        async def client(send: Send, calls: int) -> None:
            for _ in range(calls):
                refused = True
                while refused:
                    refused, headers = await called(send)
                    told = observe(headers, 0.0)
                    if refused:
                        await pause(told.after or 1.0)
                    if self._observes:
                        for seconds in pacer.pauses(KEY, told.allowances, loop.time()).values():
                            await pause(seconds)

        return client


def _by_process() -> AsyncConcurrencyLimiter:
    loop = asyncio.get_running_loop()
    law = AIMD(initial=10, minimum=1, backoff_ratio=0.5, timeout=60.0)
    return AsyncConcurrencyLimiter(law, queue=Queue(1000, max_wait=None), clock=lambda: round(loop.time() * 1e9))

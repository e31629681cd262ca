"""Calls that come when they come: an open loop, whose latency counts from when a call was meant to start."""

import asyncio
import random
import time
from dataclasses import dataclass
from enum import Enum, auto

import grpc
import grpc.aio

_DEADLINE_S = 1.0


class End(Enum):
    """How a call ended."""

    ANSWERED = auto()
    REFUSED = auto()
    LATE = auto()
    FAILED = auto()


ENDS = {
    grpc.StatusCode.OK: End.ANSWERED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: End.REFUSED,
    grpc.StatusCode.DEADLINE_EXCEEDED: End.LATE,
}


@dataclass(frozen=True, slots=True)
class Called:
    """One call: when it was meant to start, by how much it was late to, and how long it took from when it was meant."""

    at: float
    lag: float
    took: float
    end: End


async def offer(address: str, rate: float, seconds: float, seed: int) -> list[Called]:
    """Make so many calls a second on average, whatever becomes of them; return them all when they have ended."""
    dice, at, tasks = random.Random(seed), 0.0, []
    async with grpc.aio.insecure_channel(address) as channel:
        await channel.channel_ready()
        start = time.perf_counter()
        while (at := at + dice.expovariate(rate)) < seconds:
            await asyncio.sleep(max(0.0, start + at - time.perf_counter()))
            tasks.append(asyncio.create_task(_call(channel, start, at)))
        return await asyncio.gather(*tasks)


async def _call(channel: grpc.aio.Channel, start: float, at: float) -> Called:
    lag = time.perf_counter() - start - at
    try:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/bench.Backend/Call")
        await call(b"", timeout=_DEADLINE_S - lag)
        end = End.ANSWERED
    except grpc.aio.AioRpcError as error:
        end = ENDS.get(error.code(), End.FAILED)
    return Called(at, lag, time.perf_counter() - start - at, end)

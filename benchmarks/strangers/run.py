"""One run in virtual time: clients make their calls, strangers call meanwhile, and what came of it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.strangers.clients import Client, Fleet, Response, adaptive, assisted, backoff
from benchmarks.strangers.provider import PROVIDERS, RATE, Provider, Strangers
from tests.aio.loop import run, virtual_loop

LATENCY = 0.05
"""Seconds from a call to its response."""
OURS, BLIND, ADAPTS = "ours, observing", "ours, by its 429s alone", "ours, by its 429s and AIMD of calls under way"
BACKOFF, HEEDING = "exponential backoff", "backoff, heeding Retry-After"
AIMD, ASSISTED = "AIMD bucket each (as ATB)", "AIMD buckets by telemetry (as AATB)"
WHO = (BACKOFF, HEEDING, AIMD, ASSISTED, BLIND, ADAPTS, OURS)


class Run(NamedTuple):
    """What came of a run.

    Attributes:
        refused: 429s for each success, percent.
        seconds: until all clients had made their calls.
        strangers: calls of strangers that were refused, percent.
        used: successes, of what the provider gives less what strangers got, percent.
        asked: requests to our store and pauses, for each success.
    """

    refused: float
    seconds: float
    strangers: float
    used: float
    asked: float


def simulated(provider: str, who: str, calls: int) -> Run:
    """Have a hundred clients make so many calls each."""
    return run(lambda: _run(PROVIDERS[provider], who, calls))


async def _run(make: Callable[[float], Provider], who: str, calls: int) -> Run:
    loop = virtual_loop()
    provider, began, refused = make(loop.time()), loop.time(), 0
    strangers = Strangers(provider)
    others = asyncio.ensure_future(strangers.call())

    async def send() -> Response:
        nonlocal refused
        await asyncio.sleep(LATENCY / 2)
        admitted = provider.take(loop.time())
        response = Response(not admitted, provider.says(loop.time(), admitted=admitted))
        refused += not admitted
        await asyncio.sleep(LATENCY / 2)
        return response

    fleet, clients = _clients(who)
    await asyncio.gather(*[client(send, calls) for client in clients])
    seconds, successes = loop.time() - began, calls * len(clients)
    others.cancel()
    asked = fleet.pauses + sum(store.asked for store in fleet.stores) if fleet else 0
    theirs = strangers.admitted + strangers.refused
    left = RATE * seconds - strangers.admitted
    return Run(
        100 * refused / successes, seconds, 100 * strangers.refused / theirs, 100 * successes / left, asked / successes
    )


def _clients(who: str) -> tuple[Fleet | None, Sequence[Client]]:
    if who in (OURS, BLIND, ADAPTS):
        fleet = Fleet(observes=who == OURS, adapts=who == ADAPTS)
        return fleet, fleet.clients()
    rivals = {BACKOFF: lambda: backoff(heeds=False), HEEDING: lambda: backoff(heeds=True), AIMD: adaptive}
    return None, rivals.get(who, assisted)()

"""A run in real time: processes with httpx2 and our transport, a real store, and a provider in a process of its own."""

import asyncio
import contextlib
import multiprocessing
import time
from multiprocessing.connection import Connection

import httpx2

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.httpx import AsyncLimitedTransport
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.outbound import heard
from benchmarks.strangers.clients import QUOTA, Response, Send, backoff
from benchmarks.strangers.provider import RATE, Strangers, TellingBucket
from benchmarks.strangers.run import BACKOFF, LATENCY, OURS, Run

PROCESSES, CLIENTS_EACH = 4, 25
_SETTLE = 4.0
"""Seconds until all processes have begun."""


def measured(who: str, calls: int) -> Run:
    """Have a hundred clients in four processes make so many calls each, in real time."""
    begins = time.monotonic() + _SETTLE
    ours, theirs = multiprocessing.Pipe()
    provider = multiprocessing.Process(target=_provide, args=(theirs, begins), daemon=True)
    provider.start()
    port = ours.recv()
    with contextlib.closing(EmbeddedStore()) as store:
        url = store.url if who == OURS else ""
        ended = max(heard([(_call, (url, f"http://127.0.0.1:{port}/", begins, calls))] * PROCESSES))
    ours.send("enough")
    refused, admitted, others_refused = ours.recv()
    provider.join()
    seconds, successes = ended - begins, calls * PROCESSES * CLIENTS_EACH
    used = 100 * successes / (RATE * seconds - admitted)
    return Run(100 * refused / successes, seconds, 100 * others_refused / (admitted + others_refused), used, 0.0)


def _provide(pipe: Connection, begins: float) -> None:
    refused = 0

    async def run() -> Strangers:
        provider = TellingBucket(time.monotonic())
        strangers = Strangers(provider)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal refused
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await reader.readuntil(b"\r\n\r\n")
                    now = time.monotonic()
                    admitted = provider.take(now)
                    refused += not admitted
                    fields = provider.says(now, admitted=admitted) | {"content-length": "0"}
                    await asyncio.sleep(LATENCY)
                    lines = [f"HTTP/1.1 {200 if admitted else 429} Said", *(f"{n}: {v}" for n, v in fields.items())]
                    writer.write("\r\n".join([*lines, "", ""]).encode())
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await asyncio.sleep(begins - time.monotonic())
        others = asyncio.ensure_future(strangers.call())
        await asyncio.to_thread(pipe.recv)
        others.cancel()
        return strangers

    strangers = asyncio.run(run())
    pipe.send((refused, strangers.admitted, strangers.refused))


def _call(url: str, upstream: str, begins: float, calls: int, pipe: Connection) -> None:
    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=CLIENTS_EACH)
            transport: httpx2.AsyncBaseTransport = httpx2.AsyncHTTPTransport(limits=limits, trust_env=False)
            if url:
                opened = AsyncRateLimiter.from_url(url, QUOTA, deadline=1.0, connect_timeout=30.0)
                limiter = await stack.enter_async_context(opened)
                transport = AsyncLimitedTransport(limiter, wait=600, transport=transport, observe=True)
            client = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, trust_env=False))

            async def send() -> Response:
                response = await client.get(upstream, timeout=600)
                return Response(response.status_code == 429, dict(response.headers))

            async def again(send: Send, calls: int) -> None:
                for _ in range(calls):
                    while (await send()).is_refused:
                        pass  # the transport waits

            await asyncio.sleep(begins - time.monotonic())
            clients = [again] * CLIENTS_EACH if url else backoff(heeds=False)[:CLIENTS_EACH]
            await asyncio.gather(*[each(send, calls) for each in clients])

    asyncio.run(run())
    pipe.send(time.monotonic())


WHO = (BACKOFF, OURS)

"""gRPC servers and clients behind rules, threaded and on asyncio, on loopback, in a time that the test sets."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations import grpc as faces
from batchlimit.rules import Rule, Rules
from tests.apis.blocking import Awaited
from tests.awaiting import awaited
from tests.integrations.enforcers import Apart
from tests.integrations.gate import Gate
from tests.integrations.service import AsyncService, Service
from tests.integrations.stage import Client, server
from tests.sync.stage import Clock, until


class Limits:
    """A limiter of these rules, for threads or for tasks, and its store."""

    def __init__(self, asynchronous: bool, rules: Iterable[Rule]) -> None:
        self.asynchronous, self.rules, self.clock = asynchronous, Rules(rules), Clock()
        self.store = Apart(self.clock)
        options: Any = {"clock": self.clock, "sizer": FixedBatch(1), "on_failure": self.rules.on_failure}
        self.limiter: Any = (
            AsyncRateLimiter(Awaited(self.store), self.rules.quotas, **options)
            if asynchronous
            else RateLimiter(self.store, self.rules.quotas, **options)
        )

    def do(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return awaited(call, *args, **options) if self.asynchronous else call(*args, **options)

    def left(self, key: str) -> int:
        found: int = self.do(self.limiter.peek, key).remaining
        return found

    def until_left(self, key: str, wanted: int) -> None:
        """Wait: a client may hear sooner of the end of its call than the limiter."""
        until(lambda: self.left(key) == wanted)


class Scene:
    """A server behind rules."""

    def __init__(self, limits: Limits, interceptor: Any, gate: Gate, address: str) -> None:
        self.limits, self.interceptor, self.gate, self.address = limits, interceptor, gate, address

    @contextmanager
    def client(self, **options: Any) -> Iterator[Client]:
        with grpc.insecure_channel(self.address, options=tuple(options.items())) as channel:
            yield Client(channel)

    def counts(self, rule: str) -> dict[str, int]:
        counts = self.interceptor.statistics().rules[rule]
        return {name: value for name in counts.__slots__ if (value := getattr(counts, name))}


@contextmanager
def serving(
    asynchronous: bool, *rules: Rule, messages: Iterable[Rule] = (), limiter: Any = None, **options: Any
) -> Iterator[Scene]:
    """Serve the service of tests behind rules; `limiter`: another one than that in the test's own time."""
    messages = list(messages)
    limits, gate = Limits(asynchronous, [*rules, *messages]), Gate()
    make = faces.AsyncRateLimitInterceptor if asynchronous else faces.RateLimitInterceptor
    interceptor: Any = make(limiter or limits.limiter, rules, messages=messages, **options)
    with server(asynchronous, (AsyncService if asynchronous else Service)(gate), interceptor) as address:
        try:
            yield Scene(limits, interceptor, gate, address)
        finally:
            gate.open()
    limits.do(limits.limiter.close)


class Caller:
    """A client behind rules: calls methods of each of the KINDS and returns their answers."""

    def __init__(self, limits: Limits, channel: Any, interceptor: Any) -> None:
        self.limits, self.interceptor, self._channel = limits, interceptor, channel

    def call(self, kind: str, *requests: str, **options: Any) -> list[str]:
        method = getattr(self._channel, kind)(f"/test.Echo/{kind}", str.encode, bytes.decode)
        found: list[str] = self.limits.do(
            _call_async if self.limits.asynchronous else _call, method, kind, requests, options
        )
        return found


def _call(method: Any, kind: str, requests: tuple[str, ...], options: dict[str, Any]) -> list[str]:
    found = method(iter(requests) if kind.startswith("stream") else requests[0], **options)
    return list(found) if kind.endswith("stream") else [found]


async def _call_async(method: Any, kind: str, requests: tuple[str, ...], options: dict[str, Any]) -> list[str]:
    found = method(iter(requests) if kind.startswith("stream") else requests[0], **options)
    return [each async for each in found] if kind.endswith("stream") else [await found]


@contextmanager
def calling(
    asynchronous: bool, address: str, *rules: Rule, source: str | None = None, **options: Any
) -> Iterator[Caller]:
    """Call a server through rules, of a limiter in the test's own time or of that of a URL."""
    limits = Limits(asynchronous, rules)
    limiter: Any = source or limits.limiter
    if asynchronous:
        client = faces.AsyncRateLimitClient(limiter, rules, **options)
        channel: Any = awaited(_channel, address, client)
        try:
            yield Caller(limits, channel, client)
        finally:
            awaited(channel.close)
            awaited(client.close)
            awaited(limits.limiter.close)
    else:
        interceptor = faces.RateLimitClientInterceptor(limiter, rules, **options)
        with grpc.insecure_channel(address) as plain:
            yield Caller(limits, grpc.intercept_channel(plain, interceptor), interceptor)
        limits.limiter.close()


async def _channel(address: str, client: faces.AsyncRateLimitClient) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, interceptors=client.interceptors)

"""A gRPC server on loopback behind a limiter, on either front, and a client of it."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import Any

import grpc
import grpc.aio

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, ConcurrencyStatistics, KeyedConcurrencyLimiter
from batchlimit.concurrency.law import Law
from batchlimit.integrations.grpc import AsyncConcurrencyInterceptor, ConcurrencyInterceptor
from tests.awaiting import awaited
from tests.integrations.gate import Gate
from tests.integrations.service import AsyncService, Service
from tests.sync.stage import until

_PATIENCE_S = 10.0
"""How long a server may take to stop, of a test that failed."""


class Call:
    """A call that its client has begun."""

    def __init__(self, call: Any, streams: bool) -> None:
        self._call, self._streams = call, streams

    def answers(self) -> list[str]:
        """Return all its responses; or raise."""
        return list(self._call) if self._streams else [self._call.result()]

    def first(self) -> str:
        """Return the first response of a stream."""
        return str(next(self._call))

    def cancel(self) -> None:
        self._call.cancel()

    @property
    def code(self) -> grpc.StatusCode:
        """How it ended, when it has."""
        self._end()
        return self._call.code()  # type: ignore[no-any-return]

    @property
    def details(self) -> str:
        self._end()
        return str(self._call.details())

    @property
    def told(self) -> dict[str, str]:
        """Its trailing metadata."""
        self._end()
        return dict(self._call.trailing_metadata())

    def _end(self) -> None:
        with suppress(grpc.RpcError, grpc.FutureCancelledError):
            self.answers()


class Client:
    """Calls the service of a stage: methods of each of the KINDS, with one request or several."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def call(
        self,
        kind: str,
        *requests: str,
        service: str = "test.Echo",
        to: str = "",
        later: Iterator[str] | None = None,
        **options: Any,
    ) -> Call:
        """Begin a call, to the method of its kind or to another one; `later` come more requests."""
        argument = chain(requests, later or ()) if kind.startswith("stream") else requests[0]
        method = getattr(self._channel, kind)(f"/{service}/{to or kind}", str.encode, bytes.decode)
        streams = kind.endswith("stream")
        return Call((method if streams else method.future)(argument, **options), streams)


class Stage:
    """A server behind a limiter of this law, and how to reach it; `do` calls what is a coroutine function or is not."""

    def __init__(
        self, law: Any, limiter: Any, intercept: Any, gate: Gate, address: str, do: Callable[..., Any]
    ) -> None:
        self.law, self.limiter, self.gate, self.address = law, limiter, gate, address
        self._intercept, self._do = intercept, do

    def intercept(self, continuation: Any, details: Any) -> Any:
        """Ask the interceptor, as if a call had come."""
        return self._do(self._intercept.intercept_service, continuation, details)

    def close_limiter(self) -> None:
        self._do(self.limiter.close)

    @property
    def statistics(self) -> ConcurrencyStatistics:
        counts: ConcurrencyStatistics = self.limiter.statistics()
        return counts

    def rest(self) -> None:
        """Wait until no call is under way: a client may hear sooner of the end of its call than the limiter."""
        until(lambda: self.statistics.in_flight == 0)

    @property
    def counted(self) -> tuple[int, int, int]:
        """How many calls were a success, dropped and ignored, once none is under way."""
        self.rest()
        counts = self.statistics
        return counts.succeeded, counts.dropped, counts.ignored

    @contextmanager
    def held(self, client: Client) -> Iterator[None]:
        """A call is under way meanwhile, and is served at the end."""
        call = client.call("unary_unary", "hold")
        self.gate.meet()
        yield
        self.gate.open()
        assert call.answers() == ["hold"]

    @contextmanager
    def client(self, **options: Any) -> Iterator[Client]:
        """A client on a channel of its own."""
        with grpc.insecure_channel(self.address, options=tuple(options.items())) as channel:
            yield Client(channel)


SetUp = Callable[..., Any]
"""Sets up a stage: of this limiter, with so many workers, and options for the interceptor."""


@contextmanager
def server(
    asynchronous: bool, handler: grpc.GenericRpcHandler, *interceptors: Any, workers: int | ThreadPoolExecutor = 4
) -> Iterator[str]:
    """Serve on loopback, by threads or on the loop of the tests; yield the address."""
    if asynchronous:
        started, address = awaited(_start, handler, interceptors)
    else:
        pool = ThreadPoolExecutor(workers) if isinstance(workers, int) else workers
        started = grpc.server(pool, [handler], list(interceptors))
        address = f"127.0.0.1:{started.add_insecure_port('127.0.0.1:0')}"
        started.start()
    try:
        yield address
    finally:
        awaited(started.stop, None) if asynchronous else started.stop(None).wait(_PATIENCE_S)


async def _start(handler: grpc.GenericRpcHandler, interceptors: Any) -> tuple[grpc.aio.Server, str]:
    started = grpc.aio.server(handlers=[handler], interceptors=interceptors)
    port = started.add_insecure_port("127.0.0.1:0")
    await started.start()
    return started, f"127.0.0.1:{port}"


@contextmanager
def _staged(
    asynchronous: bool, law: Law, *, workers: int = 4, interceptor: dict[str, Any] | None = None, keyed: Any = None,
    **options: Any,
) -> Iterator[Stage]:  # fmt: skip
    """A stage of either API. The options are the limiter's; `keyed` are the limits of a limiter by key."""
    one, by_key, make, service, do = APIS[asynchronous]
    limiter, gate = one(law, **options) if keyed is None else by_key(keyed, **options), Gate()
    intercept = make(limiter, **interceptor or {})
    try:
        with server(asynchronous, service(gate), intercept, workers=workers) as address:
            try:
                yield Stage(law, limiter, intercept, gate, address, do)
            finally:
                gate.open()
    finally:
        do(limiter.close)


def _call(do: Callable[..., Any], *args: Any) -> Any:
    return do(*args)


APIS: dict[bool, Any] = {
    False: (ConcurrencyLimiter, KeyedConcurrencyLimiter, ConcurrencyInterceptor, Service, _call),
    True: (AsyncConcurrencyLimiter, AsyncKeyedConcurrencyLimiter, AsyncConcurrencyInterceptor, AsyncService, awaited),
}
threaded = partial(_staged, False)
on_asyncio = partial(_staged, True)

"""How many calls a gRPC server has under way at once: interceptors for threads and asyncio, and those by method."""

from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from functools import lru_cache
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from batchlimit import AsyncConcurrencyLimiter, BatchLimitError, ConcurrencyLimited, ConcurrencyLimiter
from batchlimit.admission.permit import ASYNC, THREADED, give_back
from batchlimit.base.key import by_name
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter
from batchlimit.errors import PermitLost
from batchlimit.integrations.grpc import serving
from batchlimit.integrations.grpc.answer import OutcomeOf, outcome_of, refused_by_limiter
from batchlimit.integrations.grpc.details import HELD, AsksForPermits, Name
from batchlimit.integrations.grpc.queued import QueuedCall, refusing
from batchlimit.integrations.permits import KeyOf
from batchlimit.shared import AsyncSharedConcurrencyLimiter, SharedConcurrencyLimiter

L = TypeVar("L")
T = TypeVar("T")
_MOST = 1000
"""Methods that are known by name; of others the patterns are looked through."""


class ConcurrencyInterceptor(
    AsksForPermits[ConcurrencyLimiter | KeyedConcurrencyLimiter | SharedConcurrencyLimiter], grpc.ServerInterceptor
):
    """Lets as many calls in at once as the limiter lets; refuses the others before they take a worker thread.

    A call is under way from before it queues for a worker until its handler has returned, or its stream has ended. So
    the queue before the workers is part of what the limiter sees and limits. No call waits in the queue of the limiter,
    unless you pass `workers`: it then waits there without a thread, and takes a worker when it has its place. The
    operation of a call is its method in full.

    Args:
        limiter: The limiter: by key, shared by key, or one limit for all. It may serve others too. A shared one is
            asked by the worker thread, because that may take a round trip. Its handlers are to call `check_permit`
            before each step that must not happen twice: the call ends there with UNAVAILABLE, if its permit is lost.
        partition: Returns the name of a call's partition (default None: no name, so it gets what is spare).
        key: Returns the key of a call, for a limiter by key, or several keys for a keyed one (default None: the limiter
            has no keys). A call is refused if it raises.
        outcome: Returns what a status tells about the load (default `outcome_of`). `classify` of the limiter judges an
            exception that ends a handler without a status.
        sheddable: Returns whether a call may be told to give up; see Shedding (default None: of none). A stream ends at
            its next request or response then. A handler of one response ends where it calls `check_permit`.
        priority: Returns the priority of a call: high ones are served first in the queue, low ones are shed first
            (default None: the same for all).
        workers: The pool of the server, for calls that wait in the limiter's queue (default None: no call waits). A
            call of several keys does not wait. One whose client went away keeps its place in the queue.
        timeout: How long a call waits there at most (seconds; None, the default: as long as the queue lets it).

    Raises:
        TypeError: `key`, `sheddable` or `workers` does not go with the limiter.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import grpc
        >>> from batchlimit import ConcurrencyLimiter
        >>> with ConcurrencyLimiter() as limiter, ThreadPoolExecutor(4) as workers:
        ...     server = grpc.server(workers, interceptors=[ConcurrencyInterceptor(limiter)])
        ...     server.stop(None).wait()
        True
    """

    _kinds = THREADED

    def __init__(
        self,
        limiter: ConcurrencyLimiter | KeyedConcurrencyLimiter | SharedConcurrencyLimiter,
        *,
        partition: Name | None = None,
        key: KeyOf | None = None,
        outcome: OutcomeOf = outcome_of,
        sheddable: Callable[[grpc.HandlerCallDetails], bool] | None = None,
        priority: Callable[[grpc.HandlerCallDetails], int] | None = None,
        workers: Executor | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__(limiter, partition=partition, key=key, outcome=outcome, sheddable=sheddable, priority=priority)
        if workers is not None and self._permits.is_shared:
            raise TypeError("workers= is for limiters of this process: calls ask a shared one in their worker")
        self._workers, self._timeout = workers, timeout

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        """Let a call in, or refuse it; grpcio calls this."""
        details, queued, handler = handler_call_details, None, None
        if self._permits.is_shared:
            found, permits = continuation(details), self._permits
            return found and self._served(
                found, lambda: permits.acquire(details, timeout=0, **self._options(details)), may_end=True
            )
        asked = self._options(details)
        try:
            if self._workers is None:
                permit = self._permits.acquire(details, timeout=0, **asked)
            else:
                queued = QueuedCall(self._workers)
                permit = self._permits.acquire(details, back=queued.back, timeout=self._timeout, **asked)
        except BatchLimitError as error:
            return refusing(refused_by_limiter(error))
        waits = queued if permit is None else None
        try:
            if found := continuation(details):
                handler = self._served(found, waits.permit if waits else lambda: permit, asked.get("sheddable", False))
        finally:
            if handler is None:
                waits.forget() if waits else give_back(permit)
        return waits.handler(handler) if waits and handler else handler

    def _served(self, found: serving.Handler, acquire: Callable[[], Any], may_end: bool) -> serving.Handler:
        """Return a handler that serves a call under the permit that a worker gets, which `may_end` it early."""

        def begin(context: Any) -> serving.CallEnd:
            try:
                permit = acquire()
            except BatchLimitError as error:
                refused_by_limiter(error).end(context)
                raise
            HELD.set(permit)
            return serving.CallEnd(context, serving.completing(permit, self._outcome), permit if may_end else None)

        return serving.served(found, begin, blocks=may_end)


class AsyncConcurrencyInterceptor(
    AsksForPermits[AsyncConcurrencyLimiter | AsyncKeyedConcurrencyLimiter | AsyncSharedConcurrencyLimiter],
    grpc.aio.ServerInterceptor,
):
    """Lets as many calls in at once as the limiter lets; refuses the others before their requests are read.

    A call that finds no room waits in the limiter's queue, if there is one, until its client gives up. A call is under
    way until its handler has returned or raised, or its stream has ended. Handlers are coroutine functions or async
    generator functions: for others there is the threaded server. The operation of a call is its method in full.

    Args:
        limiter: The limiter: by key, shared by key, or one limit for all. It may serve others too. A call whose shared
            permit is lost is cancelled, and ends with UNAVAILABLE.
        sheddable: Returns whether the limiter may cancel the handler of a call; see Shedding (default None: of none).
        partition, key, outcome, priority: As of ConcurrencyInterceptor, with the same defaults.

    Example:
        >>> import grpc.aio
        >>> from batchlimit import AsyncConcurrencyLimiter, Queue
        >>> async with AsyncConcurrencyLimiter(queue=Queue(100)) as limiter:
        ...     server = grpc.aio.server(interceptors=[AsyncConcurrencyInterceptor(limiter)])
        ...     await server.stop(None)
    """

    _kinds = ASYNC

    async def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        """Let a call in, or refuse it; grpcio calls this."""
        details = handler_call_details
        try:
            permit = await self._permits.acquire(details, **self._options(details))
        except BatchLimitError as error:
            return serving.refusing_async(refused_by_limiter(error))

        async def serve(requests: AsyncIterator[Any], context: Any) -> Any:
            HELD.set(permit)
            try:
                async with permit:
                    return await run(requests, context, serving.completing(permit, self._outcome))
            except (ConcurrencyLimited, PermitLost) as error:
                if not getattr(permit, "shed", False) and not getattr(permit, "lost", False):
                    raise
                await refused_by_limiter(error).end(context)

        handler = None
        try:
            if found := await continuation(details):
                run = serving.served_async(found)
                handler = serving.streaming_async(found, serve)
        finally:
            if handler is None:
                give_back(permit)
        return handler


class _Interceptors(Generic[L, T]):
    """The interceptors by method; what was found for a name stays known for a while."""

    _limiter: type
    _kind: type
    _made: Callable[[Any], Any]
    """Makes an interceptor of a limiter."""

    def __init__(self, interceptors: Mapping[str, L | T | None]) -> None:
        entries: Any = interceptors
        if not isinstance(entries, Mapping) or not entries:
            raise TypeError(f'interceptors must be like {{"/shop.Orders/*": limiter}}, not {entries!r}')
        made = dict[str, tuple[Any]]()
        for name, given in entries.items():
            if not (given is None or isinstance(given, (self._kind, self._limiter))):
                raise TypeError(
                    f"{name!r} needs a {self._limiter.__name__}, an interceptor, or None to let its calls pass, "
                    f"not {given!r}; a limiter by key comes in an interceptor with its key="
                )
            made[name] = (self._made(given) if isinstance(given, self._limiter) else given,)
        self._names, self._of = list(made), lru_cache(_MOST)(by_name(made))  # clients name methods as they like

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._names}>"

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        """Hand a call to the interceptor of its method; grpcio calls this, and awaits the answer on asyncio."""
        entry = self._of(handler_call_details.method)
        if entry is None or entry[0] is None:
            return continuation(handler_call_details)
        return entry[0].intercept_service(continuation, handler_call_details)


class ByMethod(_Interceptors[ConcurrencyLimiter, grpc.ServerInterceptor], grpc.ServerInterceptor):
    """Has an interceptor for each method of a threaded server, so that one server has a limit for each.

    Args:
        interceptors: A dict from methods and glob patterns to a ConcurrencyLimiter, an interceptor of a threaded
            server, or None: such calls pass. A call goes by the first entry that names it: its method in full
            (`/package.Service/Method`), then the patterns in their order, then "*". A call that no entry names passes.

    Raises:
        TypeError: An entry is none of these.

    Example:
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.concurrency import KeyedConcurrencyLimiter
        >>> from batchlimit.integrations.grpc import ByMethod, ConcurrencyInterceptor, by_metadata
        >>> from batchlimit.laws import Fixed
        >>> packs = ConcurrencyInterceptor(KeyedConcurrencyLimiter({"*": 20}), key=by_metadata("repo"))
        >>> limits = ByMethod({"/git.Packs/*": packs, "/grpc.health.*": None, "*": ConcurrencyLimiter(Fixed(200))})
    """

    _limiter, _kind, _made = ConcurrencyLimiter, grpc.ServerInterceptor, ConcurrencyInterceptor


class AsyncByMethod(_Interceptors[AsyncConcurrencyLimiter, grpc.aio.ServerInterceptor], grpc.aio.ServerInterceptor):
    """Has an interceptor for each method of a server on asyncio, as ByMethod for threads.

    Args:
        interceptors: A dict from methods and glob patterns to an AsyncConcurrencyLimiter, an interceptor of a server on
            asyncio, or None.

    Raises:
        TypeError: An entry is none of these.

    Example:
        >>> from batchlimit import AsyncConcurrencyLimiter
        >>> limits = AsyncByMethod({"/shop.Orders/Pay": AsyncConcurrencyLimiter(), "/grpc.health.*": None})
    """

    _limiter, _kind, _made = AsyncConcurrencyLimiter, grpc.aio.ServerInterceptor, AsyncConcurrencyInterceptor

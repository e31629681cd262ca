"""Calls of clients wait, leave and end, or are refused, by EveryCall on threads, AsyncEveryCall on asyncio."""

import asyncio
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn

import grpc
import grpc.aio

from batchlimit.base.steps import Steps, drive, run
from batchlimit.base.waiting import patience
from batchlimit.integrations import enforcement
from batchlimit.integrations.grpc.answer import CallRefusal, refused_by_rules
from batchlimit.integrations.grpc.details import Changed

Ended = Callable[[grpc.StatusCode, Any, BaseException | None], None]
"""Gets the status and the trailing metadata of an admitted call, once; and the error, if the call could not be made."""


class RefusedCall(grpc.RpcError, grpc.Call, grpc.Future):  # type: ignore[type-arg]  # generic in its stubs alone
    """A call that never left this process: an error, and a call that has ended with this error.

    Attributes:
        refusal: why it is refused.
        retry_after: seconds; None if nothing is known, inf for never.

    Example:
        >>> import grpc
        >>> from batchlimit.integrations.grpc import RateLimitClientInterceptor, RefusedCall
        >>> from batchlimit.rules import Rule
        >>> limits = RateLimitClientInterceptor("memory://", [Rule("mail", "0/s", key="mail")])
        >>> with grpc.intercept_channel(grpc.insecure_channel("localhost:1"), limits) as channel:
        ...     try:
        ...         channel.unary_unary("/mail.Mail/Send")(b"hello")
        ...     except RefusedCall as refused:
        ...         refused.code()
        <StatusCode.RESOURCE_EXHAUSTED: (8, 'resource exhausted')>
    """

    def __init__(self, refusal: enforcement.Refusal, answer: CallRefusal | None = None) -> None:
        self._answer = answer or refused_by_rules(refusal)
        super().__init__(self._answer.details)
        self.refusal, self.retry_after = refusal, refusal.retry_after
        self.__cause__ = refusal.error

    def __repr__(self) -> str:
        return f"<RefusedCall {self._answer.code.name}: {self._answer.details}>"

    def __iter__(self) -> "RefusedCall":
        return self

    def __next__(self, timeout: float | None = None) -> NoReturn:
        raise self

    # What grpc.Call and grpc.Future ask for.

    def code(self) -> grpc.StatusCode:
        return self._answer.code

    def details(self) -> str:
        return self._answer.details

    def initial_metadata(self) -> Any:
        return ()

    def trailing_metadata(self) -> Any:
        return self._answer.metadata

    def is_active(self, callback: Callable[[], None] | None = None) -> bool:
        return False

    add_callback = cancel = cancelled = running = is_active
    result = __next__

    def time_remaining(self) -> float | None:  # type: ignore[override]  # grpcio returns None where it says float
        return None

    def done(self) -> bool:
        return True

    def exception(self, timeout: float | None = None) -> "RefusedCall":
        return self

    def traceback(self, timeout: float | None = None) -> TracebackType | None:
        return self.__traceback__

    def add_done_callback(self, fn: Callable[[Any], None]) -> None:
        fn(self)


class AsyncRefusedCall(grpc.aio.AioRpcError):
    """The same on asyncio.

    Attributes:
        refusal: why it is refused.
        retry_after: seconds; None if nothing is known, inf for never.

    Example:
        >>> import grpc.aio
        >>> from batchlimit.integrations.grpc import AsyncRateLimitClient, AsyncRefusedCall
        >>> from batchlimit.rules import Rule
        >>> limits = AsyncRateLimitClient("memory://", [Rule("mail", "0/s", key="mail")])
        >>> async with grpc.aio.insecure_channel("localhost:1", interceptors=limits.interceptors) as channel:
        ...     try:
        ...         await channel.unary_unary("/mail.Mail/Send")(b"hello")
        ...     except AsyncRefusedCall as refused:
        ...         print(refused.code())
        StatusCode.RESOURCE_EXHAUSTED
        >>> await limits.close()
    """

    def __init__(self, refusal: enforcement.Refusal, answer: CallRefusal | None = None) -> None:
        answer = answer or refused_by_rules(refusal)
        metadata = grpc.aio.Metadata(*answer.metadata)
        super().__init__(answer.code, grpc.aio.Metadata(), metadata, answer.details)
        self.refusal, self.retry_after = refusal, refusal.retry_after
        self.__cause__ = refusal.error


class Admits:
    """Asks before a call leaves, and says that it may not, as one API or the other does."""

    _error: Callable[..., Exception]

    def _wait_for(self, wait: bool, timeout: float | None) -> None:
        """Have calls wait (s), if at all, and until their deadline at most."""
        patience(timeout)
        if timeout is not None and not wait:
            raise ValueError("timeout says how long calls wait, and they do not: pass wait=True")
        self._waits, self._timeout = wait, timeout

    def _admission(self, details: Any, timeout: float | None) -> Steps[Ended | None]:
        """Return what gets the end of the call (None: nobody needs it), or raise what refuses it."""
        raise NotImplementedError

    def _call(self, details: Any, send: Callable[[Any], Any], watch: Callable[[Any, Ended], Any]) -> Steps[Any]:
        """Let a call go, with the rest of its time, or refuse it; `watch` tells of its end. Return what to read."""
        began, given = time.monotonic(), details.timeout
        timeout = min((each for each in (self._timeout, given) if each is not None), default=None)
        asked = details
        if isinstance(details.method, bytes):  # as that of asyncio gives it; functions of the user's get a str
            asked = Changed(details, method=details.method.decode())
        ended = yield from self._admission(asked, timeout if self._waits else 0.0)
        if self._waits and given is not None:
            details = Changed(details, timeout=max(0.0, given - (time.monotonic() - began)))
        if ended is None:
            return (yield send(details))
        try:
            call = yield send(details)
        except BaseException as error:
            ended(grpc.StatusCode.UNKNOWN, (), error)
            raise
        return watch(call, ended)


class EveryCall(
    Admits,
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Intercepts the calls of all four kinds of methods alike: `_admission` says which may leave."""

    _error = RefusedCall

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Let a call go, or refuse it; grpcio calls this."""
        try:
            return run(self._call(client_call_details, lambda details: continuation(details, request), _watch))
        except RefusedCall as refused:
            return refused

    intercept_unary_stream = intercept_unary_unary
    # The stubs of grpcio call the last argument `request_iterator` here; grpcio passes it by position.
    intercept_stream_unary = intercept_stream_stream = intercept_unary_unary  # type: ignore[assignment]


def _watch(call: Any, ended: Ended) -> Any:
    """Tell of the end of a call, and keep it not: grpcio cancels one that its reader drops. Return what to read."""
    if not hasattr(call, "code"):
        next(responses := _iterated(call, ended))
        return responses
    if (state := getattr(call, "_state", None)) is None or call.done():

        def over(*_: object) -> None:
            ended(call.code(), call.trailing_metadata(), None)

        if hasattr(call, "add_done_callback"):
            call.add_done_callback(over)
        elif not call.add_callback(over):  # it need not be a future
            over()
        return call
    seen = weakref.ref(state)  # it lasts until all callbacks have run

    def end() -> None:
        ended(getattr(seen(), "code", grpc.StatusCode.CANCELLED), getattr(seen(), "trailing_metadata", ()), None)

    if not call.add_callback(end):
        end()
    return call


def _iterated(responses: Any, ended: Ended) -> Any:
    """Yield the responses of an interceptor behind this one that returns no call, as OpenTelemetry's; first nothing.

    One that has begun ends where its reader drops it, also unread.
    """
    code = grpc.StatusCode.CANCELLED
    try:
        yield
        yield from responses
        code = grpc.StatusCode.OK
    except grpc.RpcError as error:
        code = error.code() if hasattr(error, "code") else grpc.StatusCode.UNKNOWN
        raise
    finally:
        ended(code, (), None)


_KINDS: tuple[tuple[type[grpc.aio.ClientInterceptor], str], ...] = (
    (grpc.aio.UnaryUnaryClientInterceptor, "intercept_unary_unary"),
    (grpc.aio.UnaryStreamClientInterceptor, "intercept_unary_stream"),
    (grpc.aio.StreamUnaryClientInterceptor, "intercept_stream_unary"),
    (grpc.aio.StreamStreamClientInterceptor, "intercept_stream_stream"),
)
"""What grpcio takes for each kind of method, and what it calls."""


class AsyncEveryCall(Admits):
    """The same on asyncio, where grpcio takes an interceptor for each kind of method."""

    _error = AsyncRefusedCall

    def __init__(self) -> None:
        self._ends: set[asyncio.Task[None]] = set()
        self.interceptors: Sequence[grpc.aio.ClientInterceptor] = [
            type(kind.__name__, (kind,), {method: staticmethod(self._intercept)})() for kind, method in _KINDS
        ]

    async def _intercept(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await drive(self._call(client_call_details, lambda details: continuation(details, request), self._watch))

    def _watch(self, call: Any, ended: Ended) -> Any:
        async def end() -> None:  # in a task, which may be long after the interceptor has returned the call
            ended(await call.code(), await call.trailing_metadata(), None)

        def begin(_: object = None) -> None:
            task = asyncio.get_running_loop().create_task(end())
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)

        try:
            call.add_done_callback(begin)
        except NotImplementedError:  # the response of an interceptor behind this one: there is no call
            begin()
        return call

"""What a client gets of a call that its own rules or limiter refuse: it looks as if the server had refused the call."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

import grpc
import grpc.aio

from batchlimit.integrations import enforcement
from batchlimit.integrations.grpc.answer import CallRefusal, refused_by_rules


class RefusedCall(grpc.RpcError, grpc.Call, grpc.Future):  # type: ignore[type-arg]  # generic in its stubs alone
    """A call that never left this process: an error, and a call that has ended with this error.

    It has 15 public methods: those that grpc.Call and grpc.Future ask for.

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

    def __next__(self) -> NoReturn:
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

    def is_active(self) -> bool:
        return False

    def time_remaining(self) -> float | None:  # type: ignore[override]  # grpcio returns None where it says float
        return None

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return False

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return False

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> NoReturn:
        raise self

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
        >>> import asyncio
        >>> import grpc.aio
        >>> from batchlimit.integrations.grpc import AsyncRateLimitClient, AsyncRefusedCall
        >>> from batchlimit.rules import Rule
        >>> async def main() -> None:
        ...     limits = AsyncRateLimitClient("memory://", [Rule("mail", "0/s", key="mail")])
        ...     async with grpc.aio.insecure_channel("localhost:1", interceptors=limits.interceptors) as channel:
        ...         try:
        ...             await channel.unary_unary("/mail.Mail/Send")(b"hello")
        ...         except AsyncRefusedCall as refused:
        ...             print(refused.code())
        ...     await limits.close()
        >>> asyncio.run(main())
        StatusCode.RESOURCE_EXHAUSTED
    """

    def __init__(self, refusal: enforcement.Refusal, answer: CallRefusal | None = None) -> None:
        answer = answer or refused_by_rules(refusal)
        metadata = grpc.aio.Metadata(*answer.metadata)
        super().__init__(answer.code, grpc.aio.Metadata(), metadata, answer.details)
        self.refusal, self.retry_after = refusal, refusal.retry_after
        self.__cause__ = refusal.error

"""One interceptor of a server that has another one for each method, such as a limit of its own."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.base.patterns import by_name
from batchlimit.integrations.grpc.concurrency import AsyncConcurrencyInterceptor, ConcurrencyInterceptor

L = TypeVar("L")
T = TypeVar("T")
_MOST = 1000
"""Methods that are known by name; of others the patterns are looked through."""


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
        >>> from batchlimit.integrations.grpc import AsyncByMethod
        >>> limits = AsyncByMethod({"/shop.Orders/Pay": AsyncConcurrencyLimiter(), "/grpc.health.*": None})
    """

    _limiter, _kind, _made = AsyncConcurrencyLimiter, grpc.aio.ServerInterceptor, AsyncConcurrencyInterceptor

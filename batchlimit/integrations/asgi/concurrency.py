"""ConcurrencyLimitMiddleware: how many requests of an ASGI application are under way at once."""

from functools import partial

from batchlimit import AsyncConcurrencyLimiter, BatchLimitError
from batchlimit.admission.permit import ASYNC
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter
from batchlimit.errors import PermitLost
from batchlimit.integrations.asgi.exchange import Exchange, Receive, Scope, Send, answer
from batchlimit.integrations.carried import PERMIT
from batchlimit.integrations.permits import PermitMiddleware, refusal_of
from batchlimit.shared import AsyncSharedConcurrencyLimiter


class ConcurrencyLimitMiddleware(
    PermitMiddleware[AsyncConcurrencyLimiter | AsyncKeyedConcurrencyLimiter | AsyncSharedConcurrencyLimiter]
):
    """Lets as many requests into the application at once as a concurrency limiter allows; the others get a 503.

    A request holds its permit until its response has ended: a stream, until its last part. If its client leaves before,
    it holds the permit until the application has ended. How it ended feeds the law of the limiter. Websockets last for
    as long as their clients like, and say nothing about the load: they pass by.

    The scope has the permit as "batchlimit.permit". If a shared permit is lost, the request is cancelled. Its answer is
    503; if its response has begun, the connection is cut.

    Args:
        app: the application.
        limiter: the AsyncConcurrencyLimiter, AsyncKeyedConcurrencyLimiter or AsyncSharedConcurrencyLimiter; its owner
            closes it.
        partition, key, timeout, outcome, priority, bypass, operation: as of ConcurrencyLimit, with the same defaults.
            The functions get the scope, but for `outcome`.

    Example:
        >>> import httpx
        >>> from batchlimit import AsyncConcurrencyLimiter
        >>> from batchlimit.laws import Fixed
        >>> async def app(scope, receive, send): ...
        >>> limiter = AsyncConcurrencyLimiter(Fixed(1))
        >>> limited = httpx.ASGITransport(ConcurrencyLimitMiddleware(app, limiter))
        >>> async with httpx.AsyncClient(transport=limited, base_url="http://shop") as client:
        ...     async with limiter.acquire():  # another request is under way
        ...         (await client.get("/")).status_code
        503
    """

    _kinds = ASYNC

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as any ASGI application."""
        if scope["type"] != "http" or self._permits.passes_by(scope):
            await self.app(scope, receive, send)
            return
        try:
            permit = await self._permits.acquire(scope)
        except BatchLimitError as error:
            await _refuse(error, scope, receive, send)
            return
        scope[PERMIT] = permit
        ended = partial(self._permits.complete, permit, scope)
        exchange = Exchange(receive, send, (), ended, lasts=True)
        if not self._permits.is_shared:
            await exchange.run(self.app, scope)
            return
        try:  # the application is cancelled if the permit is lost
            async with permit:
                await exchange.run(self.app, scope)
        except PermitLost as lost:
            if exchange.has_started:
                raise
            await _refuse(lost, scope, receive, send)


async def _refuse(error: BatchLimitError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request. A Refusal in a frame that the error passed would be left to the garbage collector."""
    refusal = refusal_of(error)
    await answer(refusal, scope, receive, send, refusal.fields)

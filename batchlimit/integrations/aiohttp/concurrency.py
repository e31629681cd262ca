"""concurrency_limits: how many requests of an aiohttp application are under way at once."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Unpack

from aiohttp import web

from batchlimit import AsyncConcurrencyLimiter, BatchLimitError
from batchlimit.admission.permit import give_back
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter
from batchlimit.integrations.aiohttp.limits import CALL_PERMIT, answer, send
from batchlimit.integrations.enforcement import Response
from batchlimit.integrations.permits import ConcurrencyLimit, PermitOptions, WebPermits, refusal_of

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def concurrency_limits(
    limiter: AsyncConcurrencyLimiter | AsyncKeyedConcurrencyLimiter, **options: Unpack[PermitOptions]
) -> Any:
    """Return a middleware that lets as many requests in at once as a limiter allows; the others get a 503.

    A request holds its permit until its response has ended. A websocket gives its permit back when it is open.

    Args:
        limiter: the limiter; its owner closes it.
        partition, key, timeout, outcome, priority, bypass, operation: as of ConcurrencyLimit, with the same defaults,
            but that an operation is the template of a route. The functions get the request, but for `outcome`.

    Returns:
        The middleware, for `web.Application(middlewares=[...])`; put it first.

    Raises:
        TypeError: the limiter is of another kind, or `key` does not go with it.

    Example:
        >>> from aiohttp import web
        >>> from batchlimit import AsyncConcurrencyLimiter
        >>> app = web.Application(middlewares=[concurrency_limits(AsyncConcurrencyLimiter())])
    """

    def template(request: web.Request) -> str:
        resource = request.match_info.route.resource
        return "" if resource is None else f"{request.method} {resource.canonical}"

    options.setdefault("operation", template)
    kinds = AsyncConcurrencyLimiter, AsyncKeyedConcurrencyLimiter
    permits = WebPermits(kinds, ConcurrencyLimit(limiter=limiter, **options))

    @web.middleware
    async def limited(request: web.Request, handler: Handler) -> web.StreamResponse:
        if permits.passes_by(request):
            return await handler(request)
        try:
            permit = request[CALL_PERMIT] = await permits.acquire(request)
        except BatchLimitError as error:
            return answer(refusal_of(error))
        if "Upgrade" in request.headers:
            vars(request)["_prepare_hook"] = partial(_prepare, request, permit)
        try:
            response = await handler(request)
            if isinstance(response, web.StreamResponse):  # else aiohttp tells what is wrong, and answers 500
                await send(request, response)
        except web.HTTPException as raised:
            permits.complete(permit, request, Response(raised.status, error=raised))
            raise
        except BaseException as error:
            status = 499 if isinstance(error, asyncio.CancelledError | ConnectionError) else 500  # 499: the client left
            permits.complete(permit, request, Response(status, error=error, complete=False))
            raise
        permits.complete(permit, request, Response(getattr(response, "status", 500)))
        return response

    return limited


async def _prepare(request: web.Request, permit: Any, response: web.StreamResponse) -> None:
    """Prepare a response, as aiohttp would. Not before it is known whether a handler opens a websocket, or answers."""
    if isinstance(response, web.WebSocketResponse):
        give_back(permit)  # it lasts for as long as its client likes, and says nothing about the load
    await type(request)._prepare_hook(request, response)  # noqa: SLF001

"""AiohttpHold: what the rules say of one request of aiohttp, and how its response goes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import WSMessage, WSMsgType, web

from batchlimit.integrations.enforcement import Outcome, Refusal, Response, RouteLimit
from batchlimit.integrations.front import AsyncFront
from batchlimit.integrations.headers import Header, texts

_FAILED = 500
_GONE = 499
_POLICY_VIOLATION = 1008


def answer(refusal: Refusal) -> web.Response:
    """Return the answer to a request that is refused."""
    response = web.Response(status=refusal.status, body=refusal.body)
    put(refusal.headers, response)
    return response


def put(fields: list[Header], response: web.StreamResponse) -> None:
    """Put header fields into a response."""
    for name, value in texts(fields):
        response.headers[name] = value


class AiohttpHold:
    """One request that was admitted."""

    __slots__ = ("_front", "_response", "_sent", "outcome", "reject")

    def __init__(
        self,
        front: AsyncFront,
        outcome: Outcome,
        reject: Callable[[web.Request, Refusal], Awaitable[web.StreamResponse]],
    ) -> None:
        self._front, self.outcome, self.reject = front, outcome, reject
        self._response: web.StreamResponse | None = None
        self._sent = 0

    async def ask(self, limit: RouteLimit, request: web.Request) -> Refusal | None:
        """Charge the request to the rule that its route asks for."""
        return await self._front.enforcer.ask(limit, self.outcome, parameters=request.match_info)

    def prepare(self, response: web.StreamResponse) -> None:
        """Add the fields to a response that is about to start, and watch it."""
        put(self.outcome.headers, response)
        self._response = response
        if self._front.of_messages is not None and isinstance(response, web.WebSocketResponse):
            self._limit_messages(response)
        elif self.outcome.charges:
            self._count(response)

    async def finish(self, request: web.Request, response: web.StreamResponse) -> None:
        """Send the response, and settle: with it, or with what went wrong.

        After this aiohttp sends the response once more. That does nothing, or raises if the client has gone.
        """
        if not self.outcome.charges:
            return
        try:
            prepare = response.prepare
            if isinstance(response, web.FileResponse):  # its `prepare` sends the file, as often as it is called
                response.prepare = _sent  # type: ignore[method-assign]
            await prepare(request)
            await response.write_eof()
        except ConnectionError as error:
            self.settle(error)
            return
        except BaseException as error:
            self.settle(error)
            raise
        sent = self._sent or (0 if request.method == "HEAD" else response.content_length or 0)
        self._settle(response, 0, None, sent)

    def settle(self, error: BaseException) -> None:
        """Settle a request whose handler has raised, or whose response could not be sent."""
        response = error if isinstance(error, web.HTTPException) else self._response
        otherwise = _GONE if isinstance(error, asyncio.CancelledError | ConnectionError) else _FAILED
        self._settle(response, otherwise, error, self._sent)

    def _settle(
        self, response: web.StreamResponse | None, otherwise: int, error: BaseException | None, sent: int
    ) -> None:
        """Settle; `otherwise` is the status of a response that did not start."""
        status, told = (otherwise, ()) if response is None else (response.status, response.headers.items())
        headers = [(name.lower().encode("latin-1"), value.encode("utf-8")) for name, value in told]
        self._front.settle(self.outcome, Response(status, headers, error, error is None, sent))

    def _count(self, response: web.StreamResponse) -> None:
        """Count what a body that is an iterator, and a handler that writes by itself, hand to the response."""
        writer: Any = response._payload_writer  # noqa: SLF001  both pass by it

        def counting(write: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
            async def counted(data: bytes = b"", **options: Any) -> None:
                await write(data, **options)
                self._sent += memoryview(data).nbytes

            return counted

        writer.write, writer.write_eof = counting(writer.write), counting(writer.write_eof)

    def _limit_messages(self, websocket: web.WebSocketResponse) -> None:
        """Charge each message that the handler receives, however it asks for it; the first refused one closes."""
        receive: Any = websocket.receive

        async def limited(timeout: float | None = None) -> WSMessage:
            message: WSMessage = await receive(timeout)
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return message
            refused = await self._front.refused_message(self.outcome.request)
            if refused is None:
                return message
            reason = b"too many messages" if refused.status == 429 else b"messages cannot be admitted now"
            await websocket.close(code=_POLICY_VIOLATION, message=reason)
            return WSMessage(WSMsgType.CLOSED, None, None)

        websocket.receive = limited  # type: ignore[method-assign]


async def _sent(request: web.BaseRequest) -> None:
    """Prepare a file that was sent: nothing is left to do."""


HOLD = web.RequestKey("batchlimit", AiohttpHold)
"""Where a request has its AiohttpHold."""
CALL_PERMIT = web.RequestKey("batchlimit.permit", object)
"""Where a request has its permit."""

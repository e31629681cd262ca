"""The lifespan of an ASGI application: its limiter is there before it starts, and after it has stopped."""

from batchlimit.integrations.asgi.messages import ASGIApp, Message, Receive, Scope, Send
from batchlimit.integrations.async_source import LimiterHome

_STOPPED = ("lifespan.shutdown.complete", "lifespan.shutdown.failed", "lifespan.startup.failed")


async def lifespan(home: LimiterHome, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Pass the lifespan through to the application; make the limiter at its start, close it at its end."""

    async def starting() -> Message:
        message = await receive()
        if message["type"] == "lifespan.startup":
            home.open()
        return message

    async def stopping(message: Message) -> None:
        if message["type"] in _STOPPED:
            await home.close_quietly()
        await send(message)

    try:
        await app(scope, starting, stopping)
    finally:
        await home.close_quietly()

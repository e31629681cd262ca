"""An application behind uvicorn in a process of its own: python served.py URL PREFIX [DEADLINE]. It says its port."""

import asyncio
import sys
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from batchlimit import AsyncRateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations.asgi import RateLimitMiddleware
from batchlimit.rules import Rule, Rules
from tests.listening import listening

RULES = [
    Rule("burst", "3/hour", key="burst:{user}", match="/hello/*"),
    Rule("bytes", "100/day", key="bytes:{user}", match="/stream/*", cost=50, charge=lambda response: response.sent),
    Rule("login", "2/hour", key="login:{user}", match="POST /login", charge=lambda response: response.status == 401),
    Rule("broken", "2/hour", key="broken:{user}", match="/broken/*", charge=lambda response: response.status >= 500),
    Rule("handshake", "1/hour", key="handshake:{user}", match="/refused"),
    Rule("item", "100/hour", key="item:{id}", match="/items/{id}"),
]
MESSAGES = [Rule("messages", "2/hour", key="messages:{user}", match="/chat")]


def identify(scope: Any) -> dict[str, str]:
    return {"user": dict(scope["headers"]).get(b"x-user", b"nobody").decode("latin-1")}


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


async def item(request: Request) -> Response:
    return PlainTextResponse(str(len(request.path_params["id"])))


async def login(request: Request) -> Response:
    return PlainTextResponse("", status_code=int(await request.body()))


async def stream(request: Request) -> Response:
    async def parts() -> Any:
        for number in range(3):
            yield b"%d" % number * 10
            if request.path_params["how"] == "held" and number == 0:
                await asyncio.Event().wait()
        if request.path_params["how"] == "broken":
            raise ZeroDivisionError

    return StreamingResponse(parts(), media_type="text/plain")


async def broken(request: Request) -> Response:
    await request.body()
    raise ZeroDivisionError


async def left(request: Request) -> Response:
    limiter: Any = middleware.enforcer._limiter()
    found = (await limiter.peek(request.query_params["key"])).remaining
    return JSONResponse({"left": found, "open": len(middleware._home._settling)})


async def chat(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text)


application = Starlette(
    routes=[
        Mount("/hello", routes=[Route("/{name}", hello)]),
        Route("/login", login, methods=["POST"]),
        Route("/stream/{how}", stream),
        Route("/broken/{how}", broken, methods=["GET", "POST"]),
        Route("/items/{id}", item),
        Route("/left", left),
        WebSocketRoute("/chat", chat),
        WebSocketRoute("/refused", chat),
    ]
)


def open_limiter() -> AsyncRateLimiter:
    return AsyncRateLimiter.from_url(
        sys.argv[1],
        Rules([*RULES, *MESSAGES]).quotas,
        prefix=sys.argv[2],
        deadline=30.0,
        connect_timeout=30.0,
        sizer=FixedBatch(5),
    )


middleware = RateLimitMiddleware(application, open_limiter, RULES, identify=identify, messages=MESSAGES)

if __name__ == "__main__":
    listener = listening()
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(middleware, log_level="error", timeout_graceful_shutdown=10, timeout_keep_alive=1000)
    uvicorn.Server(config).run(sockets=[listener])

"""A hand-made caller of ASGI applications, and applications to call."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.integrations.structured import Limit, read_limits

App = Callable[..., Awaitable[None]]
Fields = Sequence[tuple[bytes, bytes]]
PEER = ("192.0.2.1", 50_000)


@dataclass
class Reply:
    """All that an application sent."""

    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def starts(self) -> list[dict[str, Any]]:
        return [each for each in self.messages if each["type"].endswith("response.start")]

    @property
    def status(self) -> int:
        (start,) = self.starts
        status: int = start["status"]
        return status

    @property
    def fields(self) -> dict[bytes, bytes]:
        (start,) = self.starts
        assert len({name for name, _ in start["headers"]}) == len(start["headers"])
        return dict(start["headers"])

    @property
    def limits(self) -> dict[str, Limit]:
        return read_limits(self.fields)

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.messages)


def http(path: str = "/", method: str = "GET", *, headers: Fields = (), client: Any = PEER) -> dict[str, Any]:
    """The scope of a request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode("utf-8", "surrogateescape"),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": list(headers),
        "client": client,
        "server": ("testserver", 80),
    }


def websocket(path: str = "/", *, extensions: dict[str, Any] | None = None) -> dict[str, Any]:
    """The scope of a handshake."""
    scope = http(path) | {"type": "websocket", "scheme": "ws", "subprotocols": [], "extensions": extensions or {}}
    del scope["method"]
    return scope


async def call(app: App, scope: dict[str, Any], *incoming: dict[str, Any]) -> Reply:
    """Call an application; what is after a handshake comes when that is answered, and at last the client is gone."""
    reply, left, ended, answered = Reply(), list(incoming), asyncio.Event(), asyncio.Event()
    if not incoming:
        left = [{"type": "websocket.connect" if scope["type"] == "websocket" else "http.request", "body": b""}]

    async def receive() -> dict[str, Any]:
        if scope["type"] == "websocket" and 0 < len(left) < len(incoming):
            await answered.wait()
        if left:
            return left.pop(0)
        await ended.wait()
        return {"type": f"{scope['type']}.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        reply.messages.append(message)
        answered.set()
        is_last = message["type"].endswith("http.response.body") and not message.get("more_body")
        if is_last or message["type"] == "websocket.close":
            ended.set()

    await app(scope, receive, send)
    return reply


def start(status: int = 200, headers: Fields = ((b"content-type", b"text/plain"),)) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


class Hello:
    """Says hello, and counts whom it has seen."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.seen: list[dict[str, Any]] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.seen.append(scope)
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        elif scope["type"] == "websocket":
            await echo(receive, send)
        else:
            await send(start(self.status))
            await send(part(b"hello"))


async def echo(receive: Any, send: Any) -> None:
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept", "headers": []})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


async def lifespan(receive: Any, send: Any) -> None:
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})

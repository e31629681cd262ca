"""The application of the matrix in FastAPI."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Response, WebSocket
from fastapi.responses import StreamingResponse

from batchlimit.integrations.fastapi import add_exception_handlers, add_rate_limits, limited, responses
from tests.integrations.faces.rules import RULES, endless, parts, user_of


def build(limiter: Any, *, typo: bool = False, **options: Any) -> FastAPI:
    app = FastAPI(responses=responses())
    router = APIRouter(prefix="/included", dependencies=[Depends(limited("search:{user}"))])
    inner = APIRouter()
    mounted = FastAPI()

    def told(x_told: Annotated[str, Header()] = "told") -> dict[str, str]:
        return {"user": x_told}

    @app.get("/hello")
    @inner.get("/search")
    async def hello() -> str:
        return "hello"

    @app.get("/search", dependencies=[Depends(limited("search:{user}"))])
    @mounted.get("/search", dependencies=[Depends(limited("search:{user}"))])
    def search() -> str:  # in a thread
        return "found"

    @app.get("/told", dependencies=[Depends(limited("search:{user}", identify=told))])
    async def by_told() -> str:
        return "found"

    @app.get("/items/{id}", dependencies=[Depends(limited("item:{id}"))])
    async def item(id: str) -> str:  # noqa: A002
        return id

    @app.get("/stream", dependencies=[Depends(limited("bytes:{user}"))])
    async def stream() -> StreamingResponse:
        return StreamingResponse(parts(), media_type="text/plain")

    @app.get("/endless", dependencies=[Depends(limited("gone:{user}"))])
    async def without_end() -> StreamingResponse:
        return StreamingResponse(endless(), media_type="text/plain")

    @app.get("/login/{status}", dependencies=[Depends(limited("login:{user}", charge=[401]))])
    async def login(status: int) -> Response:
        return Response(status_code=status)

    @app.get("/broken", dependencies=[Depends(limited("broken:{user}"))])
    async def broken() -> str:
        raise ZeroDivisionError

    @app.get("/closed", dependencies=[Depends(limited("closed"))])
    @app.get("/local", dependencies=[Depends(limited("local"))])
    @app.get("/open", dependencies=[Depends(limited("open"))])
    async def away() -> str:
        return "here"

    @app.websocket("/ws", dependencies=[Depends(limited("handshake:{user}"))])
    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        async for text in websocket.iter_text():
            await websocket.send_text(text)

    if typo:
        app.get("/typo", dependencies=[Depends(limited("serch:{user}"))])(hello)
    router.include_router(inner)
    app.include_router(router)
    app.mount("/mounted", mounted)
    add_exception_handlers(mounted)
    add_rate_limits(app, limiter, RULES, identify=user_of, **options)
    return app

"""FastAPI whose limits Prometheus sees, with one worker, or with several and PROMETHEUS_MULTIPROC_DIR."""

import os

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from batchlimit.integrations.fastapi import add_rate_limits
from batchlimit.rules import Rule
from batchlimit.telemetry.prometheus import export

RULES = [
    Rule("search", "100/hour", key="search:all", match="/search"),
    Rule("all", "100000/s", key="all", match="/*"),
]


class Metrics:
    """Tells Prometheus before the rules can refuse it: what this process counted, or all workers together."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._registry = app, REGISTRY
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/metrics":
            return await self._app(scope, receive, send)
        page = await run_in_threadpool(generate_latest, self._registry)
        return await Response(page, media_type=CONTENT_TYPE_LATEST)(scope, receive, send)


app = FastAPI()
limits = add_rate_limits(app, os.environ.get("REDIS_URL", "redis://localhost:6379/0"), RULES)
app.add_middleware(Metrics)  # after the limits, so that it stands before them
exporter = export(limits, name="api")


@app.get("/search")
async def search() -> str:
    """Search."""
    return "found"

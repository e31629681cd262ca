"""FastAPI whose limits Prometheus sees, with one worker, or with several and PROMETHEUS_MULTIPROC_DIR."""

import os

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.fastapi import add_rate_limits
from batchlimit.rules import Rule, Rules
from batchlimit.telemetry.prometheus import export

RULES = Rules(
    [
        Rule("search", "100/hour", key="search:all", match="/search"),
        Rule("all", "100000/s", key="all", match="/*"),
    ]
)

app = FastAPI()
limiter = AsyncRateLimiter.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), RULES.quotas)
limits = add_rate_limits(app, limiter, RULES)
exporter = export(limiter, limits, name="api")


@app.get("/search")
async def search() -> str:
    """Search."""
    return "found"


@app.get("/metrics", include_in_schema=False)
def metrics() -> Response:
    """Tell Prometheus: what this process counted, or with several workers, what all of them did."""
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

"""The service of the matrix in gRPC, on threads or on asyncio. The rules are those of its service's names."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio

from batchlimit import FailurePolicy
from batchlimit.integrations.grpc import AsyncRateLimitInterceptor, RateLimitInterceptor
from batchlimit.rules import Rule, Rules
from tests.integrations.gate import Gate
from tests.integrations.service import AsyncService, Service

RULES = [
    Rule("all", "1000/hour", key="all", match="/test.Search/*"),
    Rule("search", "4/hour", key="search:{user}", match="/test.Search/*", cost=2),
    Rule("sent", "100/day", key="sent:{user}", match="/test.Sent/*", cost=50, charge=lambda call: call.sent),
    Rule(
        "gone", "9/hour", key="gone:{user}", match="/test.Gone/*", cost=5, charge=lambda call: 0 if call.complete else 1
    ),
    Rule("closed", "100/hour", key="closed", match="/test.Closed/*", on_failure="closed"),
    Rule("open", "100/hour", key="open", match="/test.Open/*", on_failure="open"),
    Rule("local", "100/hour", key="local", match="/test.Local/*", on_failure=FailurePolicy.local(instances=1)),
]
_ADDRESS = "127.0.0.1:0"


def identify(context: Any) -> dict[str, object]:
    return {"user": dict(context.invocation_metadata()).get("user")}


def on_threads(limiter: Any) -> tuple[grpc.Server, int]:
    server = grpc.server(
        ThreadPoolExecutor(8), [Service(Gate())], [RateLimitInterceptor(limiter, Rules(RULES), identify=identify)]
    )
    port = server.add_insecure_port(_ADDRESS)
    server.start()
    return server, port


async def on_asyncio(limiter: Any) -> tuple[grpc.aio.Server, int]:
    interceptor = AsyncRateLimitInterceptor(limiter, Rules(RULES), identify=identify)
    server = grpc.aio.server(handlers=[AsyncService(Gate())], interceptors=[interceptor])
    port = server.add_insecure_port(_ADDRESS)
    await server.start()
    return server, port

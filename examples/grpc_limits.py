"""A gRPC server behind rules, and a client that keeps to a rule of its own: `python -m examples.grpc_limits`."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from batchlimit.integrations.grpc import RateLimitClientInterceptor, RateLimitInterceptor
from batchlimit.rules import Rule

STORE = os.environ.get("STORE", "redis://localhost:6379/0")


def identify(context: grpc.ServicerContext) -> dict[str, object]:
    return {"user": dict(context.invocation_metadata()).get("user", "nobody")}


def greet(request: bytes, context: grpc.ServicerContext) -> bytes:
    return b"hello " + request


def serve() -> tuple[grpc.Server, int]:
    rules = [
        Rule("calls", "3/minute", key="calls:{user}", match="/demo.Greeter/*"),
        Rule("all", "5000/s", key="all"),
    ]
    limits = RateLimitInterceptor(STORE, rules, identify=identify)
    server = grpc.server(ThreadPoolExecutor(8), interceptors=[limits])
    methods: dict[str, Any] = {"Greet": grpc.unary_unary_rpc_method_handler(greet)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("demo.Greeter", methods),))
    port = server.add_insecure_port("localhost:0")
    server.start()
    return server, port


def main() -> None:
    server, port = serve()
    polite = RateLimitClientInterceptor("memory://", [Rule("mine", "50/s", key="mine")], wait=True)
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        call: Any = grpc.intercept_channel(channel, polite).unary_unary("/demo.Greeter/Greet")
        for _ in range(4):
            try:
                answer: bytes = call(b"ann", metadata=(("user", "ann"),), timeout=30.0)
                print(answer.decode())
            except grpc.RpcError as error:
                metadata: Any = error.trailing_metadata()
                print(error.code().name, "retry after", dict(metadata)["retry-after"], "s")
    server.stop(None).wait()


if __name__ == "__main__":
    main()

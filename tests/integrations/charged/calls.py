"""What a client of gRPC is charged, in the cases that gRPC has."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from batchlimit import RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.rules import Rule
from tests.integrations.charged.behind import BURST
from tests.integrations.charged.cases import CASES, Charged
from tests.integrations.limited_grpc import serving
from tests.integrations.stage import Client
from tests.sync.stage import until


def _asks(kind: str, *requests: str, to: str = "") -> Callable[[Client], Any]:
    return lambda client: client.call(kind, *requests, to=to).code


def _crowd(client: Client) -> None:
    with ThreadPoolExecutor(BURST + 2) as pool:
        list(pool.map(lambda _: client.call("unary_unary", "a").code, range(BURST + 2)))


def _leaves(client: Client) -> None:
    stream = client.call("unary_stream", "flood")
    assert stream.first() == "first"
    stream.cancel()


ACTS: dict[str, Callable[[Client], Any]] = {
    "usual": _asks("unary_unary", "a"),
    "at_once": _crowd,
    "nowhere": _asks("unary_unary", "a", to="nothing"),
    "broken": _asks("unary_unary", "raise ZeroDivisionError"),
    "stream": _asks("unary_stream", "a"),
    "endless": _leaves,
    "ws": _asks("stream_stream", "a", "b", "c"),
}


def measured_calls() -> dict[str, Charged | None]:
    """Serve the service of tests, do everything, and return what was charged by case; None: there is no such case."""
    return {name: dict(_measured(ACTS[name])) if name in ACTS else None for name in CASES}


def _measured(act: Callable[[Client], Any]) -> Iterator[tuple[str, int]]:
    ended = list[bool]()

    def charge(response: Any) -> bool:
        ended.append(response.status == 200)
        return ended[-1]

    quota = f"{BURST}/day"
    rules = [Rule("path", quota, key="path"), Rule("outcome", quota, key="outcome", charge=charge)]
    with serving(False, *rules, messages=[Rule("messages", quota, key="messages")]) as scene, scene.client() as client:
        act(client)
        until(lambda: len(ended) == scene.interceptor.statistics().rules["outcome"].acquired)
    limits = scene.limits
    options: Any = {"clock": limits.clock, "sizer": FixedBatch(1)}
    with RateLimiter(limits.store, limits.rules.quotas, **options) as probe:
        for name in ("path", "outcome", "messages"):
            yield name, BURST - probe.peek(name).remaining

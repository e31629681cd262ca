"""What our rules add to a request within uvicorn, without sockets: microseconds, in the quickest of many short turns.

    python -m benchmarks.web_in_server [--url embedded://] [--turns 1500]

Each contender is an application of FastAPI on a connection of uvicorn's own protocol, h11 or httptools. The bytes of a
request go in, and those of the response come out. Turns of four requests alternate between all contenders. The quickest
turn is the one that nothing disturbed, so the figures hold on a busy machine. `benchmarks.web_served` has the same with
sockets and `wrk`.

"two fixed fields" is a middleware that adds two constant header fields and does nothing else: what the server takes for
them.
"match=None" is a rule that routes may ask for, and no route does; "charge" is one that hears how each response ended.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, closing
from importlib.util import find_spec
from os import getloadavg
from typing import Any, NamedTuple

from uvicorn.config import Config
from uvicorn.server import ServerState

from batchlimit.rules import Rule
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.figures import ran_on
from benchmarks.web_asgi import App, Opened, alone, entered, fast, ours
from benchmarks.web_floor import on_asgi
from benchmarks.web_rules import FLOOR_OF_FOUR, FLOOR_OF_ONE, FOUR, ONE, PATH

_REQUEST = f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n".encode()
_ALONE = "no limiter"
_WARM, _TURN = 5, 4


class _Transport(asyncio.Transport):
    """A connection whose other end reads nothing."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": ("127.0.0.1", 8000), "peername": ("192.0.2.1", 50_000)}.get(name, default)

    def write(self, data: Any) -> None:
        if data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 200"):
            raise AssertionError(f"no 200: {data}")

    def is_closing(self) -> bool:
        return False


class Connection:
    """One connection of a server to an application."""

    def __init__(self, server: str, app: App) -> None:
        config = Config(app, http=server, log_level="error", access_log=False, lifespan="off")
        config.load()
        self._state = ServerState()
        protocol: Any = config.http_protocol_class
        self._protocol = protocol(config, self._state, {})
        self._protocol.connection_made(_Transport())

    async def ask(self, requests: int) -> None:
        """Have requests answered, one after the other."""
        for _ in range(requests):
            self._protocol.data_received(_REQUEST)
            while self._state.tasks:  # noqa: ASYNC110  each turn of the loop goes on with the response
                await asyncio.sleep(0)


class Row(NamedTuple):
    """The cost of a request to one application (s)."""

    server: str
    name: str
    cost: float


def contenders(url: str) -> dict[str, Opened]:
    """Return an application that does nothing else, alone and behind our middleware."""
    quota = ONE[0].quota
    return {
        _ALONE: alone(fast()),
        FLOOR_OF_ONE: alone(on_asgi(fast(), ONE)),
        FLOOR_OF_FOUR: alone(on_asgi(fast(), FOUR)),
        "1 rule and one with `match=None`": ours(fast(), url, [*ONE, Rule("route", quota, key="route", match=None)]),
        "1 rule with `charge`": ours(fast(), url, [Rule("login", quota, key="login:{ip}", charge=[200])]),
        "1 rule": ours(fast(), url, ONE),
        "4 rules": ours(fast(), url, FOUR),
        '1 rule, `headers="off"`': ours(fast(), url, ONE, "off"),
        '4 rules, `headers="off"`': ours(fast(), url, FOUR, "off"),
    }


async def measured(url: str, turns: int) -> list[Row]:
    """Return the quickest turn of each contender on each server."""
    servers = [name for name in ("h11", "httptools") if find_spec(name)]
    async with AsyncExitStack() as stack:
        apps = await entered(stack, contenders(url))
        open_ = {(server, name): Connection(server, app) for server in servers for name, app in apps.items()}
        best = dict.fromkeys(open_, float("inf"))
        for _ in range(turns):
            for which, connection in open_.items():
                best[which] = min(best[which], await _turn(connection))
    return [Row(*which, cost) for which, cost in best.items()]


async def _turn(connection: Connection) -> float:
    await connection.ask(_WARM)
    began = time.perf_counter()
    await connection.ask(_TURN)
    return (time.perf_counter() - began) / _TURN


def table(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield "| FastAPI within uvicorn | server | us a request | added, us |"
    yield "|---|---|--:|--:|"
    alone_ = {row.server: row.cost for row in rows if row.name == _ALONE}
    for server, name, cost in rows:
        yield f"| {name} | {server} | {cost * 1e6:.1f} | {(cost - alone_[server]) * 1e6:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of a Redis that nobody else uses (default: a Valkey of its own)")
    parser.add_argument("--turns", type=int, default=1500, help="default 1500")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        url = chosen.url or stack.enter_context(closing(EmbeddedStore())).url
        print(*table(asyncio.run(measured(url, chosen.turns))), sep="\n")
    print(f"\n{ran_on()}, load {getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

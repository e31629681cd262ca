"""Requests that end in every way and order, against a page of what is right: nothing is charged twice, kept or lost."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from batchlimit import AsyncConcurrencyLimiter, AsyncRateLimiter, ConcurrencyLimiter, RateLimiter
from batchlimit.batching import FixedBatch
from batchlimit.integrations import asgi, wsgi
from batchlimit.integrations.enforcement import charging
from batchlimit.laws import Fixed
from batchlimit.rules import Rule, Rules
from batchlimit.stores import MemoryStore
from tests.integrations.asgi import http, part, start
from tests.sync.stage import Clock

BURST, PLACES, COST = 20, 3, 2
RULES = Rules(
    [
        Rule(
            "settled",
            f"{BURST}/hour",
            key="settled",
            cost=COST,
            charge=lambda response: response.sent if response.status == 200 else 0,
        ),
        Rule("charged", "999/hour", key="charged"),
        Rule("shadow", "7/hour", key="shadow", cost=3, charge=lambda response: False, mode="shadow"),
    ]
)
"""The first is charged by the bytes that the application sent; nothing is refilled, for the clock stands still."""


class Failure(Exception):
    """What the application raises."""


class Wsgi:
    """A WSGI application behind both middlewares, whose requests are under way for as long as the test likes."""

    def __init__(self) -> None:
        clock = Clock()
        self.rates = RateLimiter(MemoryStore(clock), RULES.quotas, clock=clock, sizer=FixedBatch(1))
        self.places = ConcurrencyLimiter(Fixed(PLACES))
        self.app = wsgi.RateLimitMiddleware(
            wsgi.ConcurrencyLimitMiddleware(self._serve, self.places), self.rates, RULES
        )

    def begin(self) -> tuple[int, Any]:
        statuses: list[int] = []
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "192.0.2.1"}

        def start_response(status: str, headers: Any, exc_info: Any = None) -> Any:
            statuses.append(int(status[:3]))

        body = self.app(environ, start_response)
        parts = iter(body)
        next(parts)
        if statuses != [200]:
            self._close(body)
        return statuses[0], (body, parts)

    def send(self, request: Any) -> None:
        next(request[1])

    def finish(self, request: Any, how: str) -> None:
        body, parts = request
        if how == "fails":
            self.fails = True
            with suppress(Failure):
                next(parts)
        if how == "ends":
            self.ends = True
            assert not list(parts)
        self.fails = self.ends = False
        self._close(body)

    def left(self, key: str) -> int:
        return self.rates.peek(key).remaining

    def close(self) -> None:
        self.rates.close()
        self.places.close()

    fails = ends = False

    def _serve(self, environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        while not self.ends:
            yield b"x"
            if self.fails:
                raise Failure

    def _close(self, body: Any) -> None:
        if hasattr(body, "close"):
            body.close()


class Asgi:
    """The same of ASGI."""

    def __init__(self) -> None:
        clock = Clock()
        self._loop = asyncio.Runner()
        self._loop.run(self._open(clock))

    async def _open(self, clock: Clock) -> None:
        self.rates = AsyncRateLimiter(MemoryStore(clock), RULES.quotas, clock=clock, sizer=FixedBatch(1))
        self.places = AsyncConcurrencyLimiter(Fixed(PLACES))
        self.app = asgi.RateLimitMiddleware(asgi.ConcurrencyLimitMiddleware(_serve, self.places), self.rates, RULES)

    def begin(self) -> tuple[int, Any]:
        request = self._loop.run(_begun(self.app))
        return request.status, request

    def send(self, request: Any) -> None:
        self._loop.run(request.step("send"))

    def finish(self, request: Any, how: str) -> None:
        self._loop.run(request.step(how))

    def left(self, key: str) -> int:
        return int(self._loop.run(self.rates.peek(key)).remaining)

    def close(self) -> None:
        self._loop.run(self._closed())
        self._loop.close()

    async def _closed(self) -> None:
        await self.rates.close()
        await self.places.close()


class UnderWay:
    """A request to an ASGI application."""

    def __init__(self, app: Any) -> None:
        self.status = 0
        self._orders: asyncio.Queue[str] = asyncio.Queue()
        self._news: asyncio.Queue[None] = asyncio.Queue()
        self._gone = False
        self.task = asyncio.create_task(app(http() | {"orders": self._orders}, self._receive, self._send))

    async def begin(self) -> None:
        await self._news.get()
        if self.status != 200:
            await self.task

    async def step(self, what: str) -> None:
        if what == "is cancelled":
            self.task.cancel()
        else:
            self._gone = what in ("goes away", "breaks")
            self._orders.put_nowait(what)
        if what == "send":
            await self._news.get()
        else:
            with suppress(Failure, OSError, asyncio.CancelledError):
                await self.task

    async def _receive(self) -> dict[str, Any]:
        return {"type": "http.disconnect"} if self._gone else {"type": "http.request", "body": b""}

    async def _send(self, message: dict[str, Any]) -> None:
        if self._gone:
            raise OSError("the client is gone")
        self.status = message.get("status", self.status)
        if message.get("body"):
            self._news.put_nowait(None)


async def _begun(app: Any) -> UnderWay:
    request = UnderWay(app)
    await request.begin()
    return request


async def _serve(scope: Any, receive: Any, send: Any) -> None:
    await send(start(200))
    await send(part(b"x", more=True))
    while True:
        match await scope["orders"].get():
            case "fails":
                raise Failure
            case "goes away":
                await receive()
                return
            case "ends":
                await send(part(b""))
                return
            case _:
                await send(part(b"x", more=True))


class Machine(RuleBasedStateMachine):
    """The model: what each request has sent, what is left, and who may come in."""

    requests: Bundle[Any] = Bundle("requests")
    make: Callable[[], Any]

    @initialize()
    def open(self) -> None:
        self.web = self.make()
        self.settled, self.charged, self.shadow, self.under_way = BURST, 999, 7, 0
        self.open_requests: list[Any] = []

    @rule(target=requests)
    def begin(self) -> Any:
        status, request = self.web.begin()
        if self.settled < COST:
            assert status == 429
            return None
        self.charged -= 1
        if self.under_way == PLACES:
            assert status == 503
            return None
        assert status == 200
        self.settled -= COST
        self.shadow -= 3 if (asked := self.shadow >= 3) else 0
        self.under_way += 1
        self.open_requests.append(request)
        return [request, 1, asked]

    @rule(request=requests)
    def send(self, request: Any) -> None:
        if request is not None and request[0] is not None:
            self.web.send(request[0])
            request[1] += 1

    @rule(request=consumes(requests), how=st.sampled_from(["ends", "fails", "goes away", "breaks", "is cancelled"]))
    def finish(self, request: Any, how: str) -> None:
        if request is not None:
            self.open_requests.remove(request[0])
            self.web.finish(request[0], how)
            self.settled += COST - request[1]
            self.shadow += 3 * request[2]
            self.under_way -= 1

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "web"):
            assert self.web.left("charged") == self.charged
            assert self.web.left("settled") == self.settled
            assert self.web.left("shadow") == self.shadow
            assert self.web.places.statistics().in_flight == self.under_way

    def teardown(self) -> None:
        for request in self.open_requests:
            self.web.finish(request, "ends")
        self.web.close()


class _WsgiMachine(Machine):
    make = Wsgi


class _AsgiMachine(Machine):
    make = Asgi


FEW = settings(max_examples=40, stateful_step_count=25, deadline=None)


@pytest.fixture(autouse=True)
def nobody_waits_for_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has one thread: whoever waits for another response waits in vain. See test_underway.py."""
    monkeypatch.setattr(charging, "_HOLD", 0.0)


def test_a_wsgi_request_keeps_and_loses_nothing_however_it_ends(without_refresher: None) -> None:
    run_state_machine_as_test(_WsgiMachine, settings=FEW)


def test_an_asgi_request_keeps_and_loses_nothing_however_it_ends(without_refresher: None) -> None:
    run_state_machine_as_test(_AsgiMachine, settings=FEW)

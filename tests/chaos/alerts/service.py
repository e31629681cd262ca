"""A process of the fleet that Prometheus scrapes: web requests and limited calls, and what makes them go wrong."""

import logging
import random
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server

from batchlimit import BatchLimitError, ConcurrencyLimiter, FailurePolicy, Queue, RateLimiter
from batchlimit.integrations.wsgi import RateLimitMiddleware
from batchlimit.laws import AIMD, Knee
from batchlimit.rules import Rule, Rules
from batchlimit.telemetry.prometheus import export

RULES = Rules(
    [
        Rule("login", "10/s burst 100", key="login:{user}", match="POST /login"),
        Rule("search", "200/s", key="search:{user}", match="/search"),
    ]
)
HOT = "login:ann"
"""The key that a flood empties."""
FLOOD, STRANGERS, NAMELESS, SLOW = "flood", "strangers", "nameless", "slow"
"""What may go wrong in the service itself."""
_TICK = 0.02
_CALLERS, _POOLED = 6, 4


class Service:
    """Calls as long as it is not stopped; `wrong` is what goes wrong now."""

    def __init__(self, url: str, instances: int) -> None:
        self.limiter = RateLimiter.from_url(
            url, {**RULES.quotas, "mail": "5/s"}, deadline=0.5, on_failure=FailurePolicy.local(instances=instances)
        )
        web: Any = RateLimitMiddleware(_application, self.limiter, RULES, identify=_identify, checks=False)
        self.web = web
        self.calls = ConcurrencyLimiter(AIMD(initial=3, minimum=2, maximum=4, timeout=5), queue=Queue(1, max_wait=0.01))
        self.pool = ConcurrencyLimiter(Knee(maximum=3), queue=Queue(10, max_wait=5.0))
        self.wrong: frozenset[str] = frozenset()
        self._stopped, self._chance = threading.Event(), random.Random(7)
        limited = *[self._call] * _CALLERS, *[self._query] * _POOLED
        work: list[Callable[[], None]] = [self._requests, self._mail, *limited]
        self._threads = [threading.Thread(target=self._repeat, args=(each,), daemon=True) for each in work]

    def start(self) -> None:
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        self._stopped.set()
        for each in self._threads:
            each.join()
        self.limiter.close()
        self.calls.close()
        self.pool.close()

    def _repeat(self, work: Callable[[], None]) -> None:
        while not self._stopped.wait(_TICK):
            with suppress(BatchLimitError):
                work()

    def _requests(self) -> None:
        self._request("GET", "/search", USER=self._chance.choice("abc"))
        if FLOOD in self.wrong:
            for _ in range(4):
                self._request("POST", "/login", USER="ann")
        if STRANGERS in self.wrong:
            self._request("GET", "/about", USER="a")
        if NAMELESS in self.wrong:
            self._request("GET", "/search")

    def _request(self, method: str, path: str, **more: str) -> None:
        answer = self.web({"REQUEST_METHOD": method, "PATH_INFO": path, **more}, lambda *_head: None)
        if hasattr(answer, "close"):
            answer.close()

    def _mail(self) -> None:
        self.limiter.acquire("mail", timeout=2.0)

    def _call(self) -> None:
        with self.calls.acquire() as permit:
            self._stopped.wait(0.5 if SLOW in self.wrong else self._chance.expovariate(200))
            if self._chance.random() < 0.01:
                permit.drop()

    def _query(self) -> None:
        with self.pool.acquire(operation="query"):
            self._stopped.wait(0.05)


def _application(_environ: Any, start: Any) -> list[bytes]:
    start("200 OK", [])
    return []


def _identify(environ: Any) -> dict[str, str]:
    return {"user": environ["USER"]}


def serve(link: Connection, url: str, instances: int) -> None:
    """Say at which port the metrics are; then hear what is to go wrong, until the link is closed."""
    logging.getLogger("batchlimit").setLevel(logging.CRITICAL)  # what goes wrong is no news here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's to handle, which then ends the link
    service, registry = Service(url, instances), CollectorRegistry()
    export(service.limiter, service.web, service.calls, name="api", registry=registry)
    export(service.pool, name="pool", registry=registry)
    server, _ = start_http_server(0, "127.0.0.1", registry)
    service.start()
    try:
        link.send(server.server_port)
        while True:
            service.wrong = link.recv()
            link.send(None)
    except (EOFError, ConnectionError):
        service.stop()

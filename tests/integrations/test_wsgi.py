"""A WSGI application behind the middleware, called by hand in a time that the test sets."""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from batchlimit import ConcurrencyLimiter, Queue, RateLimiter
from batchlimit.integrations.headers import Fields
from batchlimit.integrations.wsgi import ConcurrencyLimitMiddleware, RateLimitMiddleware
from batchlimit.integrations.wsgi.middleware import WSGIExchange
from batchlimit.laws import Fixed
from batchlimit.rules import Rule, Rules
from tests.garbage import kept
from tests.integrations.backing import Backing
from tests.sync.stage import DEADLINE, Clock, start, together, until

PEER = "192.0.2.1"
IP = Rule("ip", "2/minute", key="ip:{ip}")
OWED = Rule("bytes", "1000/hour", key="bytes:{ip}", cost=100, charge=lambda r: r.sent if r.complete else 7)


class Reply:
    """What a server got from an application whose body it read to the end, or in part."""

    def __init__(self, app: Any, environ: dict[str, Any], parts: int | None = None) -> None:
        self.starts: list[tuple[str, list[tuple[str, str]]]] = []
        self.body = b""
        body = app(environ, self._start)
        try:
            for number, part in enumerate(body):
                self.body += part
                if number + 1 == parts:
                    break
        finally:
            if hasattr(body, "close"):
                body.close()

    def _start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        self.starts.append((status, headers))
        return self._write

    def _write(self, data: bytes) -> None:
        self.body += data

    @property
    def status(self) -> int:
        return int(self.starts[-1][0][:3])

    @property
    def fields(self) -> dict[bytes, bytes]:
        return {name.lower().encode(): value.encode() for name, value in self.starts[-1][1]}


class App:
    """Answers a status with a body in parts; `fails` raises after the first part."""

    def __init__(self, status: int = 200, parts: Iterable[bytes] = (b"hello",), *, fails: bool = False) -> None:
        self.status, self.parts, self.fails = status, list(parts), fails
        self.seen: list[str] = []
        self.closed = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.seen.append(environ["PATH_INFO"])
        return self._body(start_response)

    def _body(self, start_response: Any) -> Iterator[bytes]:
        try:
            start_response(f"{self.status} Told", [("Content-Type", "text/plain")])
            for part in self.parts:
                yield part
                if self.fails:
                    raise OSError("as told")
        finally:
            self.closed += 1


class Limited(Backing):
    """The middleware before an application."""

    def __init__(self, app: Any, *rules: Rule, clock: Clock | None = None, **options: Any) -> None:
        super().__init__(rules, clock=clock)
        self.limiter = self.make()
        options = {"headers": Fields(secret=b"s", chance=lambda: 1.0), **options}
        self.app = RateLimitMiddleware(app, self.limiter, rules, **options)

    def call(self, method: str = "GET", path: str = "/", *, parts: int | None = None, **more: Any) -> Reply:
        return Reply(self.app, request(method, path, **more), parts)


def request(method: str = "GET", path: str = "/", **more: Any) -> dict[str, Any]:
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": path}
    environ |= {"REMOTE_ADDR": PEER, "QUERY_STRING": ""}
    environ |= more
    setup_testing_defaults(environ)
    return environ


@pytest.fixture
def limited(without_refresher: None) -> Iterator[Callable[..., Limited]]:
    made: list[Limited] = []

    def make(app: Any, *rules: Rule, **options: Any) -> Limited:
        made.append(Limited(app, *rules, **options))
        return made[-1]

    yield make
    for each in made:
        each.close_of_threads()


Make = Callable[..., Limited]


def test_the_refusal_of_a_head_request_has_no_body(limited: Make) -> None:
    reply = limited(App(), Rule("off", "0/s", key="off")).call("HEAD")
    assert (reply.starts[-1][0], reply.body) == ("429 Too Many Requests", b"")
    assert int(reply.fields[b"content-length"]) > 0


def test_what_an_application_writes_is_charged_as_well(limited: Make) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        write = start_response("200 OK", [])
        write(b"c" * 50)
        return [b"d"]

    service = limited(app, OWED)
    assert len(service.call().body) == 51
    assert service.left(f"bytes:{PEER}") == 949


def noted_refunds(limiter: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What the limiter was given back; without its background thread a bucket may learn of it later."""
    refund, noted = limiter.refund, list[tuple[str, int]]()

    def refunded(key: str, cost: int) -> None:
        refund(key, cost)
        noted.append((key, cost))

    monkeypatch.setattr(limiter, "refund", refunded)
    return noted


def test_a_body_that_nobody_closes_is_charged_once_collected(limited: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    service = limited(App(parts=[b"a", b"b"]), OWED)
    refunds = noted_refunds(service.limiter, monkeypatch)
    body = service.app(request(), lambda status, headers, exc_info=None: lambda data: None)
    next(iter(body))
    del body
    gc.collect()  # the application holds the `start_response` of its own response
    until(lambda: refunds == [(f"bytes:{PEER}", 93)])


class Collecting(Clock):
    """Collects garbage at one reading: most readings are during a call of the limiter."""

    left = 0

    def __call__(self) -> float:
        self.left -= 1
        if not self.left:
            gc.collect()
        return super().__call__()


@pytest.mark.parametrize("reading", range(1, 12))
def test_a_body_that_is_collected_amid_a_call_is_charged(limited: Make, reading: int, monkeypatch: Any) -> None:
    clock = Collecting()
    service = limited(App(parts=[b"a", b"b"]), OWED, clock=clock)
    body = service.app(request(), lambda status, headers, exc_info=None: lambda data: None)
    next(iter(body))
    refunds = noted_refunds(service.limiter, monkeypatch)
    gc.disable()
    try:
        del body
        clock.left = reading
        service.limiter.decide_all({f"bytes:{PEER}": 1})
        gc.collect()
    finally:
        gc.enable()
    until(lambda: refunds == [(f"bytes:{PEER}", 93)])
    assert service.app.statistics().rules["bytes"].faults == 0


def test_a_body_that_fails_leaves_nothing_for_the_garbage_collector(limited: Make) -> None:
    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b"a"
        raise KeyError("broken")

    service = limited(app, OWED)
    with kept(WSGIExchange) as left, suppress(KeyError):
        list(service.app(request(), lambda status, headers, exc_info=None: lambda data: None))
    assert left == []


@pytest.mark.parametrize("rules", [(IP,), (OWED,), (Rule("off", "0/s", key="off"),)])
def test_the_middleware_keeps_to_wsgi_on_both_of_its_sides(limited: Make, rules: tuple[Rule, ...]) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"hello"]

    service = limited(validator(app), *rules)
    Reply(validator(service.app), request())


def test_a_path_is_that_of_the_whole_site(limited: Make) -> None:
    service = limited(App(), Rule("cafe", "0/s", key="off", match="/app/caf\u00e9"))
    latin = "/caf\u00e9".encode().decode("latin-1")
    assert service.call(path=latin, SCRIPT_NAME="/app").status == 429
    assert service.call(path=latin, SCRIPT_NAME="").status == 200


def test_text_that_no_server_should_pass_is_limited_as_it_is(limited: Make) -> None:
    web = limited(App(), Rule("euro", "1/minute", key="euro", match="/\u20ac"))
    fields: dict[str, Any] = {"HTTP_X_FORWARDED_FOR": "\u20ac"}
    assert [web.call(path="/\u20ac", **fields).status for _ in range(2)] == [200, 429]


def test_a_limiter_is_made_once_by_the_first_requests() -> None:
    made: list[RateLimiter] = []

    def make() -> RateLimiter:
        made.append(RateLimiter.from_url("memory://", Rules([IP]).quotas))
        return made[-1]

    app = RateLimitMiddleware(App(), make, [IP])
    assert made == []
    together(4, lambda: Reply(app, request()))
    assert len(made) == 1
    made[0].close()


@pytest.fixture
def one() -> Iterator[ConcurrencyLimiter]:
    with ConcurrencyLimiter(Fixed(1)) as limiter:
        yield limiter


@pytest.mark.parametrize(
    ("app", "parts", "counted"),
    [
        (App(parts=[b"a", b"b"]), 1, "ignored"),
        (App(fails=True), None, "ignored"),
    ],
)
def test_how_a_request_ended_feeds_the_law(one: ConcurrencyLimiter, app: App, parts: int | None, counted: str) -> None:
    with pytest.raises(OSError, match="as told") if app.fails else nullcontext():
        Reply(ConcurrencyLimitMiddleware(app, one), request(), parts)
    assert getattr(one.statistics(), counted) == 1
    assert one.statistics().in_flight == 0


def test_a_request_may_wait_for_its_permit() -> None:
    with ConcurrencyLimiter(Fixed(1), queue=Queue(1)) as limiter:
        permit = limiter.acquire()
        app = ConcurrencyLimitMiddleware(App(), limiter, timeout=60.0)
        reply = start(lambda: Reply(app, request()))
        until(lambda: limiter.statistics().waiting == 1)
        permit.success()
        assert reply.result(DEADLINE).status == 200

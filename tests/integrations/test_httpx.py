"""A client over a limited transport: what is sent and what is not, of httpx and httpx2, by threads and by tasks."""

import asyncio
import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import httpx2
import pytest

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.integrations.httpx import AsyncLimitedTransport, LimitedTransport
from batchlimit.stores import MemoryStore
from batchlimit.testing import FaultStore
from tests.awaiting import awaited
from tests.integrations.upstream import Said, Upstream, upstream

QUOTAS = {"127.0.0.1": "1000/s"}


@pytest.fixture
def server() -> Iterator[Upstream]:
    with upstream() as found:
        yield found


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Any:
    return request.param


def _client(library: Any, quotas: Any) -> Any:
    limiter = RateLimiter(MemoryStore(), quotas)
    return library.Client(transport=LimitedTransport(limiter, wait=0), trust_env=False)


class _Threads:
    """A client of one of the libraries with a limited transport."""

    def __init__(self, library: Any, quotas: Any, **options: Any) -> None:
        self.limiter: Any = RateLimiter(MemoryStore(), quotas)
        self.client = library.Client(transport=LimitedTransport(self.limiter, **options), trust_env=False)

    def get(self, url: str) -> Any:
        return self.client.get(url)

    def close(self) -> None:
        self.client.close()

    def decide(self, key: str) -> Any:
        return self.limiter.decide(key)


class _Tasks:
    """The same for tasks, with the face of threads."""

    def __init__(self, library: Any, quotas: Any, **options: Any) -> None:
        self.limiter: Any = AsyncRateLimiter(MemoryStore(), quotas)
        self.client = library.AsyncClient(transport=AsyncLimitedTransport(self.limiter, **options), trust_env=False)

    def get(self, url: str) -> Any:
        return awaited(self.client.get, url)

    def close(self) -> None:
        awaited(self.client.aclose)

    def decide(self, key: str) -> Any:
        return awaited(self.limiter.decide, key)


@pytest.fixture(params=[_Threads, _Tasks], ids=["threads", "tasks"])
def make(request: pytest.FixtureRequest, library: Any) -> Iterator[Any]:
    """Makes clients, and closes them."""
    made = []

    def one(quotas: Any = QUOTAS, **options: Any) -> Any:
        made.append(request.param(library, quotas, **options))
        return made[-1]

    yield one
    for each in made:
        each.close()


def test_a_request_that_has_tokens_is_sent_and_its_response_is_untouched(make: Any, server: Upstream) -> None:
    server.answers(Said(201, {"x-one": "two"}, b"made"))
    response = make().get(server.url + "/a?b=c")
    assert (response.status_code, response.headers["x-one"], response.content) == (201, "two", b"made")
    assert server.asked == [("GET", "/a?b=c")]


def test_one_that_would_wait_too_long_is_not_sent_and_answered_429(make: Any, server: Upstream) -> None:
    client = make("1/hour", wait=0.5)
    assert client.get(server.url).status_code == 200
    response = client.get(server.url)
    assert response.status_code == 429
    assert 3500 < int(response.headers["retry-after"]) <= 3600
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == 429
    assert len(server.asked) == 1


def test_one_that_is_not_sent_may_be_streamed_and_has_its_time(library: Any, server: Upstream) -> None:
    with _client(library, {"127.0.0.1": "0/s"}) as client:
        with client.stream("GET", server.url) as response:
            assert b"quota" in b"".join(response.iter_raw())
        assert client.post(server.url, content=iter([b"x"])).elapsed.total_seconds() >= 0.0


def test_a_cost_of_a_request_above_the_burst_is_answered_and_one_of_the_code_is_an_error(
    make: Any, server: Upstream
) -> None:
    response = make("5/s", cost=lambda request: 6).get(server.url)
    assert (response.status_code, response.headers["x-should-retry"]) == (429, "false")
    assert "6 tokens never fit a burst of 5" in response.json()["detail"]
    with pytest.raises(ValueError, match="6 tokens never fit a burst of 5"):
        make("5/s", cost=6).get(server.url)
    assert server.asked == []


def test_one_waits_for_its_tokens(make: Any, server: Upstream) -> None:
    client = make("20/s burst 1")
    assert [client.get(server.url).status_code for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("status", [429, 503])
def test_what_upstream_says_pauses_its_key(make: Any, server: Upstream, status: int) -> None:
    client = make(wait=0)
    server.answers(Said(status, {"retry-after": "60"}, b"later"))
    response = client.get(server.url)
    assert (response.status_code, response.content) == (status, b"later")
    assert 50 < client.decide("127.0.0.1").retry_after <= 60.1
    assert client.get(server.url).status_code == 429
    assert len(server.asked) == 1


LITTLE_IS_LEFT = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "6m0s",
}


def test_where_little_is_left_calls_are_held_back_before_a_429(make: Any, server: Upstream) -> None:
    server.answers(Said(200, LITTLE_IS_LEFT))
    client = make(wait=0, observe=True)
    assert [client.get(server.url).status_code for _ in range(2)] == [200, 429]
    assert 50 < client.decide("127.0.0.1").retry_after <= 60.1
    assert len(server.asked) == 1


RETRY_INFO = json.dumps(
    {"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}]}}
).encode()
REFUSED_BY_BODY = Said(429, {"content-type": "application/json; charset=UTF-8"}, RETRY_INFO)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_refusal_whose_body_says_when_to_come_back_is_read_and_passed_on(
    make: Any, server: Upstream, encoding: str
) -> None:
    sent = gzip.compress(RETRY_INFO) if encoding == "gzip" else RETRY_INFO
    server.answers(Said(429, REFUSED_BY_BODY.headers | {"content-encoding": encoding}, [sent[:9], sent[9:]]))
    client = make(wait=0, observe=True)
    response = client.get(server.url)
    assert (response.content, response.elapsed.total_seconds() >= 0) == (RETRY_INFO, True)
    assert 30 < client.decide("127.0.0.1").retry_after <= 34.1


def test_a_refusal_that_was_read_may_be_streamed(library: Any, server: Upstream) -> None:
    server.answers(REFUSED_BY_BODY)
    limited = LimitedTransport(RateLimiter(MemoryStore(), "1000/s"), observe=True)
    with library.Client(transport=limited, trust_env=False) as client, client.stream("GET", server.url) as response:
        assert b"".join(response.iter_raw()) == RETRY_INFO


JSON = {"content-type": "application/json"}
UNREADABLE = [
    pytest.param(Said(429, JSON | {"content-encoding": "gzip"}, b"no gzip"), id="broken gzip"),
    pytest.param(Said(429, JSON | {"content-encoding": "gzip"}, gzip.compress(RETRY_INFO)[:40]), id="half of a gzip"),
    pytest.param(Said(429, JSON, [b'{"error":', None]), id="truncated"),
    pytest.param(Said(429, {"content-type": "application/json; charset=utf-16"}, b"\xff{"), id="another charset"),
]
"""Refusals whose body nobody can read, or not as JSON."""


def came_of(work: Callable[[], Any]) -> Any:
    """Return what came of a call, or of which class its error is."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001  of whatever library
        return type(error)


@pytest.mark.parametrize("said", UNREADABLE)
def test_a_refusal_whose_body_cannot_be_read_pauses_all_the_same_and_its_caller_gets_it_as_ever(
    make: Any, library: Any, server: Upstream, said: Said
) -> None:
    server.answers(said, said)
    with library.Client(trust_env=False) as plain:
        expected = came_of(lambda: plain.get(server.url).content)
    client = make(wait=0, observe=True, unsaid=60)
    assert came_of(lambda: client.get(server.url).content) == expected
    assert 50 < client.decide("127.0.0.1").retry_after <= 60.1


@pytest.mark.parametrize("said", UNREADABLE)
def test_such_a_refusal_may_be_streamed_as_far_as_it_came(library: Any, server: Upstream, said: Said) -> None:
    def streamed(client: Any) -> Any:
        parts: list[bytes] = []
        with client.stream("GET", server.url) as response:
            error = came_of(lambda: parts.extend(response.iter_raw()))
        return response.status_code, b"".join(parts), error

    server.answers(said, said)
    limited = LimitedTransport(RateLimiter(MemoryStore(), "1000/s"), observe=True)
    with library.Client(trust_env=False) as plain, library.Client(transport=limited, trust_env=False) as client:
        assert streamed(client) == streamed(plain)


def test_a_refusal_that_says_it_in_a_header_is_not_read(library: Any, server: Upstream) -> None:
    server.answers(Said(429, REFUSED_BY_BODY.headers | {"retry-after-ms": "50000"}, RETRY_INFO))
    limiter = RateLimiter(MemoryStore(), "1000/s")
    limited = LimitedTransport(limiter, observe=True)
    with library.Client(transport=limited, trust_env=False) as client, client.stream("GET", server.url) as response:
        assert not isinstance(response.stream, library.ByteStream)
        assert 40 < limiter.decide("127.0.0.1").retry_after <= 50.1


def test_who_does_not_observe_is_not_held_back(make: Any, server: Upstream) -> None:
    server.answers(Said(200, LITTLE_IS_LEFT))
    client = make(wait=0)
    assert [client.get(server.url).status_code for _ in range(2)] == [200, 200]


def test_each_attempt_of_a_client_that_retries_is_charged(make: Any, server: Upstream) -> None:
    client = make("3/hour", wait=0)
    server.says = lambda: Said(500)
    assert [client.get(server.url).status_code for _ in range(4)] == [500, 500, 500, 429]


def test_one_key_is_paused_and_no_other(make: Any, server: Upstream) -> None:
    client = make("1000/s", wait=0, key="{host}{path}")
    server.answers(Said(429, {"retry-after": "60"}))
    assert client.get(server.url + "/a").status_code == 429
    assert client.get(server.url + "/b").status_code == 200


def test_a_transport_of_ones_own_sends(library: Any) -> None:
    inner = library.MockTransport(lambda request: library.Response(204))
    limiter = RateLimiter(MemoryStore(), "1/hour")
    with library.Client(transport=LimitedTransport(limiter, wait=0, transport=inner)) as client:
        assert [client.get("http://a/").status_code for _ in range(2)] == [204, 429]


def test_while_the_store_is_away_a_request_is_answered_503(library: Any, server: Upstream) -> None:
    store = FaultStore(down=True)
    with library.Client(transport=LimitedTransport(RateLimiter(store, "1/s"), wait=0), trust_env=False) as client:
        response = client.get(server.url)
    assert (response.status_code, response.json()["status"], server.asked) == (503, 503, [])


def test_a_pause_that_the_store_does_not_hear_of_is_kept_by_this_process(library: Any, server: Upstream) -> None:
    store = FaultStore()
    limiter = RateLimiter(store, "1000/s", on_failure="open")

    def say() -> Said:
        store.down = True
        return Said(429, {"retry-after": "60"})

    server.says = say
    with library.Client(transport=LimitedTransport(limiter, wait=0), trust_env=False) as client:
        assert [client.get(server.url).status_code for _ in range(2)] == [429, 429]
    assert len(server.asked) == 1


def test_a_stream_is_passed_on_as_it_comes(library: Any, server: Upstream) -> None:
    server.answers(Said(body=[b"one", b"two", b"three"]))
    limiter = RateLimiter(MemoryStore(), "1000/s")
    with (
        library.Client(transport=LimitedTransport(limiter), trust_env=False) as client,
        client.stream("GET", server.url) as response,
    ):
        assert b"".join(response.iter_raw()) == b"onetwothree"
        assert response.is_stream_consumed


async def _until(fact: Callable[[], bool]) -> None:
    while not fact():  # noqa: ASYNC110  another thread's
        await asyncio.sleep(0)


def test_a_cancelled_request_leaves_its_place_and_its_connection(library: Any, server: Upstream) -> None:
    """One that waits for tokens, and one that waits for the response: those behind it are served."""

    async def main() -> tuple[int, int]:
        opened = threading.Event()
        server.says = lambda: Said() if opened.wait(100) else Said(500)
        async with AsyncRateLimiter(MemoryStore(), "2/hour") as limiter:
            limits = library.Limits(max_connections=1)
            inner = library.AsyncHTTPTransport(limits=limits, trust_env=False)
            limited = AsyncLimitedTransport(limiter, wait=None, transport=inner)
            async with library.AsyncClient(transport=limited) as client:
                under_way = asyncio.ensure_future(client.get(server.url))
                await _until(lambda: bool(server.asked))
                under_way.cancel()
                await asyncio.wait([under_way])
                opened.set()
                second = await client.get(server.url)
                waiting = asyncio.ensure_future(client.get(server.url))
                await _until(lambda: limiter.statistics().waiting == 1)
                waiting.cancel()
                await asyncio.wait([waiting])
                return second.status_code, limiter.statistics().waiting

    assert asyncio.run(main()) == (200, 0)


def test_a_limiter_of_the_other_api_is_an_error() -> None:
    with pytest.raises(TypeError, match="AsyncRateLimiter"):
        LimitedTransport(AsyncRateLimiter.from_url("memory://", "1/s"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="RateLimiter"):
        AsyncLimitedTransport(RateLimiter.from_url("memory://", "1/s"))  # type: ignore[arg-type]


def test_neither_library_is_imported_by_the_transports() -> None:
    program = "import sys, batchlimit.integrations.httpx; print({'httpx', 'httpx2', 'requests'} & {*sys.modules})"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=300)
    assert run.stdout.strip() == "set()"

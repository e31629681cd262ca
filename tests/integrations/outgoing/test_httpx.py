"""What httpx, httpx2 and botocore alone have: streams, own transports, cancelled requests, errors of AWS."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import httpx2
import pytest
from botocore.exceptions import ClientError

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.concurrency import KeyedConcurrencyLimiter
from batchlimit.integrations.botocore import limit_client
from batchlimit.integrations.httpx import AsyncLimitedTransport, LimitedTransport
from batchlimit.stores import MemoryStore
from batchlimit.testing import FaultStore
from tests.integrations.outgoing.clients import of_aws
from tests.integrations.outgoing.test_outgoing import REFUSED_BY_BODY, RETRY_INFO, UNREADABLE, came_of
from tests.integrations.outgoing.upstream import Said, Upstream


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Any:
    return request.param


def _client(library: Any, limiter: Any = None, **options: Any) -> Any:
    limited = LimitedTransport(limiter or RateLimiter(MemoryStore(), "1000/s"), **options)
    return library.Client(transport=limited, trust_env=False)


def test_a_request_that_is_not_sent_may_be_streamed_and_has_its_time(library: Any, server: Upstream) -> None:
    with _client(library, RateLimiter(MemoryStore(), {"127.0.0.1": "0/s"}), wait=0) as client:
        with client.stream("GET", server.url) as response:
            assert b"quota" in b"".join(response.iter_raw())
        assert client.post(server.url, content=iter([b"x"])).elapsed.total_seconds() >= 0.0


@pytest.mark.parametrize("said", UNREADABLE)
def test_a_refusal_that_cannot_be_read_streams_as_far_as_it_came(library: Any, server: Upstream, said: Said) -> None:
    def streamed(client: Any) -> Any:
        parts: list[bytes] = []
        with client.stream("GET", server.url) as response:
            error = came_of(lambda: parts.extend(response.iter_raw()))
        return response.status_code, b"".join(parts), error

    server.answers(said, said)
    with library.Client(trust_env=False) as plain, _client(library, observe=True) as client:
        assert streamed(client) == streamed(plain)


def test_a_refusal_that_says_it_in_a_header_is_not_read(library: Any, server: Upstream) -> None:
    server.answers(Said(429, REFUSED_BY_BODY.headers | {"retry-after-ms": "50000"}, RETRY_INFO))
    limiter = RateLimiter(MemoryStore(), "1000/s")
    with _client(library, limiter, observe=True) as client, client.stream("GET", server.url) as response:
        assert not isinstance(response.stream, library.ByteStream)
        assert 40 < limiter.decide("127.0.0.1").retry_after <= 50.1


def test_a_pause_that_the_store_does_not_hear_of_is_kept_by_this_process(library: Any, server: Upstream) -> None:
    store = FaultStore()
    limiter = RateLimiter(store, "1000/s", on_failure="open")

    def say() -> Said:
        store.down = True
        return Said(429, {"retry-after": "60"})

    server.says = say
    with _client(library, limiter, wait=0) as client:
        assert [client.get(server.url).status_code for _ in range(2)] == [429, 429]
    assert len(server.asked) == 1


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


def test_neither_library_is_imported_by_the_transports() -> None:
    program = "import sys, batchlimit.integrations.httpx; print({'httpx', 'httpx2', 'requests'} & {*sys.modules})"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=300)
    assert run.stdout.strip() == "set()"


# What botocore alone has: each of the protocols of AWS
Made = Callable[..., Any]
XML = {"content-type": "text/xml"}
IDENTITY = Said(
    200,
    XML,
    b'<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
    b"<Account>42</Account></GetCallerIdentityResult></GetCallerIdentityResponse>",
)
TABLES = Said(200, {"content-type": "application/x-amz-json-1.0"}, b'{"TableNames": ["one"]}')


@pytest.fixture
def make(server: Upstream) -> Iterator[Made]:
    """Makes clients, and closes them."""
    made: list[Any] = []

    def one(service: str = "s3", store: Any = None, quota: str = "1000/s", attempts: int = 1, **options: Any) -> Any:
        client = of_aws(service, server.url, attempts)
        client.limiter = RateLimiter(store or MemoryStore(), quota)
        limit_client(client, client.limiter, **options)
        made.append(client)
        return client

    yield one
    for each in made:
        each.close()


def _get(client: Any) -> bytes:
    return client.get_object(Bucket="bucket", Key="key")["Body"].read()  # type: ignore[no-any-return]


def test_a_call_of_another_protocol_is_answered(make: Made, server: Upstream) -> None:
    server.answers(TABLES, IDENTITY)
    assert make("dynamodb").list_tables()["TableNames"] == ["one"]
    assert make("sts").get_caller_identity()["Account"] == "42"


@pytest.mark.parametrize(
    ("service", "call"),
    [
        ("s3", _get),
        ("dynamodb", lambda client: client.list_tables()),
        ("sts", lambda client: client.get_caller_identity()),
        ("sqs", lambda client: client.list_queues()),
        ("lambda", lambda client: client.list_functions()),
    ],
)
@pytest.mark.parametrize("away", [False, True])
def test_a_call_that_would_wait_too_long_is_an_error_of_the_service(
    make: Made, server: Upstream, service: str, call: Callable[[Any], Any], away: bool
) -> None:
    with pytest.raises(ClientError) as refused:
        call(make(service, FaultStore(down=away), quota="0/s", wait=0))
    told: Any = refused.value.response["ResponseMetadata"]
    assert (told["HTTPStatusCode"], told["HTTPHeaders"]["x-batchlimit"]) == (503, "not sent")
    assert server.asked == []


JSON = {"content-type": "application/x-amz-json-1.0"}


@pytest.mark.parametrize(
    ("service", "call", "said"),
    [
        (
            "dynamodb",
            lambda client: client.list_tables(),
            Said(400, JSON, b'{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}'),
        ),
        (
            "sts",
            lambda client: client.get_caller_identity(),
            Said(400, XML, b"<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>"),
        ),
        (
            "lambda",
            lambda client: client.list_functions(),
            Said(400, {"x-amzn-errortype": "ThrottlingException:http://internal"}, b"{}"),
        ),
    ],
    ids=["json", "xml", "rest-json"],
)
def test_a_call_that_aws_throttles_by_an_error_code_is_a_drop(
    make: Made, server: Upstream, service: str, call: Callable[[Any], Any], said: Said
) -> None:
    limits = KeyedConcurrencyLimiter({"*": 5})
    server.answers(said, said)
    clients = make(service, concurrency=limits), make(service)
    assert len({repr(came_of(partial(call, client))) for client in clients}) == 1
    counted = limits.statistics().patterns["*"]
    assert (counted.in_flight, counted.succeeded, counted.dropped) == (0, 0, 1)


@pytest.mark.parametrize(
    "body", [b'{"__type":"com.amazon.coral.validate#ValidationException"}', b"", b"{", [b'{"__t', None]]
)
def test_a_wrong_call_is_no_drop(make: Made, server: Upstream, body: Any) -> None:
    limits = KeyedConcurrencyLimiter({"*": 5})
    server.answers(Said(400, JSON, body), Said(400, JSON, body))
    clients = make("dynamodb", concurrency=limits), make("dynamodb")
    assert len({repr(came_of(client.list_tables)) for client in clients}) == 1
    counted = limits.statistics().patterns["*"]
    assert (counted.in_flight, counted.dropped) == (0, 1 if isinstance(body, list) else 0)


def test_each_attempt_is_charged(make: Made, server: Upstream) -> None:
    server.answers(Said(500), Said(200))
    client = make(quota="1000/day", attempts=2)
    assert _get(client) == b"fine"
    assert client.limiter.peek("127.0.0.1").remaining == 998

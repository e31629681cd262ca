"""How many requests are under way at once, to each host: a request is until its response was read or closed."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests

from batchlimit import AsyncConcurrencyLimiter, AsyncRateLimiter, ConcurrencyLimiter, Queue, RateLimiter
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed, KeyedConcurrencyLimiter, Outcome, classify
from batchlimit.concurrency.classification import outcome_of_answer
from batchlimit.integrations.httpx import AsyncLimitedTransport, LimitedTransport
from batchlimit.laws import AIMD, Fixed
from batchlimit.stores import MemoryStore
from tests.awaiting import awaited
from tests.integrations.outgoing.clients import FAILURES, Aiohttp, Botocore, Client, Requests, Tasks, Tasks2
from tests.integrations.outgoing.upstream import Said, Upstream, upstream
from tests.nodes import await_fact

Make = Callable[..., Any]


class Slow:
    """A body whose second part comes when `rest` is set."""

    def __init__(self) -> None:
        self.rest = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        yield b"one"
        self.rest.wait(100)
        yield b"two"


def test_a_request_is_under_way_until_its_response_was_read(make: Make, server: Upstream) -> None:
    client, slow = make({"*": 1}, wait=0), Slow()
    server.answers(Said(body=slow))
    opened = client.open(server.url)
    assert client.counts() == (1, 0, 0, 0)
    assert client.get(server.url)[0] == client.refused
    slow.rest.set()
    assert opened.read() == b"onetwo"
    assert client.counts() == (0, 1, 0, 0)
    assert client.get(server.url) == (200, b"fine")
    assert len(server.asked) == 2
    opened.close()
    assert client.counts() == (0, 2, 0, 0)


def test_a_request_is_over_when_its_response_is_closed_unread(make: Make, server: Upstream) -> None:
    client, slow = make({"*": 1}, wait=0), Slow()
    server.answers(Said(body=slow))
    client.open(server.url).close()
    slow.rest.set()
    assert client.counts() == (0, 1, 0, 0)
    assert client.get(server.url) == (200, b"fine")


@pytest.mark.parametrize("make", [Requests], indirect=True)
def test_a_request_is_over_when_nobody_holds_its_response(make: Make, server: Upstream) -> None:
    client, slow = make({"*": 1}, wait=0), Slow()
    server.answers(Said(body=slow))
    client.open(server.url)
    slow.rest.set()
    assert client.counts() == (0, 1, 0, 0)


@pytest.mark.parametrize("said", [Said(204, {}, b""), Said(200, {}, b""), Said(200, {}, [])])
def test_a_response_without_a_body_ends_its_request(make: Make, server: Upstream, said: Said) -> None:
    client = make({"*": 1}, wait=0)
    server.answers(said)
    assert client.get(server.url)[1] == b""
    client.open(server.url, "HEAD").close()
    assert client.counts() == (0, 2, 0, 0)


@pytest.mark.parametrize("limit", [1, lambda: AIMD(initial=1, minimum=1)], ids=["a number", "a law"])
def test_a_number_or_what_makes_a_law_is_the_limit_of_each_key(make: Make, server: Upstream, limit: Any) -> None:
    client, slow = make(limit, key="{port}", wait=0), Slow()
    with upstream() as other:
        server.answers(Said(body=slow))
        opened = client.open(server.url)
        assert (client.get(server.url)[0], client.get(other.url)[0]) == (client.refused, 200)
        slow.rest.set()
        opened.close()


def test_a_limit_is_that_of_the_fleet_where_it_is_shared(make: Make, server: Upstream) -> None:
    client, slow = make(shared={"*": 1}, wait=0), Slow()
    server.answers(Said(body=slow))
    opened = client.open(server.url)
    assert client.get(server.url)[0] == client.refused
    slow.rest.set()
    opened.close()
    assert client.get(server.url)[0] == 200
    assert sum(each.in_flight for each in client.concurrency.statistics().keys.values()) == 0


@pytest.mark.parametrize(("status", "counts"), [(429, (0, 0, 1, 0)), (503, (0, 0, 1, 0)), (500, (0, 0, 0, 1))])
def test_a_refusal_is_a_drop_and_an_error_is_none(make: Make, server: Upstream, status: int, counts: Any) -> None:
    client = make({"*": 1}, wait=0)
    server.answers(Said(status, {} if status == 500 else {"retry-after": "0"}))
    assert client.get(server.url)[0] == status
    assert client.counts() == counts


@pytest.mark.parametrize("begun", [False, True], ids=["its response does not come", "its body stops"])
def test_a_request_that_ends_by_its_timeout_is_a_drop(make: Make, server: Upstream, begun: bool) -> None:
    client, slow = make({"*": 1}, wait=0, patience=0.2), Slow()
    server.says = lambda: Said(body=slow) if begun or slow.rest.wait(100) else Said()
    with pytest.raises(FAILURES):
        client.get(server.url)
    slow.rest.set()
    assert client.counts() == (0, 0, 1, 0)


@pytest.mark.parametrize("make", [Requests, Botocore], indirect=True)
def test_an_error_of_who_reads_the_response_is_no_drop(make: Make, server: Upstream) -> None:
    client, slow = make({"*": 1}, wait=0), Slow()
    server.answers(Said(body=slow))
    with pytest.raises(ValueError, match="no number"), closing(client.open(server.url)):
        raise ValueError("no number")
    slow.rest.set()
    assert client.counts() == (0, 1, 0, 0)


def _broken_off() -> Iterator[bytes]:
    yield b"one"
    raise ConnectionError


def test_a_request_whose_connection_is_lost_is_a_drop(make: Make, server: Upstream) -> None:
    client = make({"*": 1}, wait=0)
    server.answers(Said(200, {"connection": "close"}, _broken_off()))
    with pytest.raises(FAILURES):
        client.get(server.url)
    assert client.counts() == (0, 0, 1, 0)


def test_a_request_that_fails_gives_its_place_back_and_its_retry_is_none(make: Make, server: Upstream) -> None:
    client = make({"*": 1}, wait=0)
    with pytest.raises(FAILURES):
        client.get("http://127.0.0.1:1")
    try:
        client.get("http://127.0.0.1:1")
    except FAILURES:
        assert client.get(server.url) == (200, b"fine")
    assert client.counts()[:2] == (0, 1)


def test_each_redirect_is_a_request_and_none_waits_for_the_one_before(make: Make, server: Upstream) -> None:
    client = make({"*": 1}, wait=0)
    if isinstance(client, Botocore):
        pytest.skip("it follows none")
    server.answers(Said(302, {"location": "/elsewhere"}, b"moved"), Said(302, {"location": "/again"}, [b"mo", b"ved"]))
    assert client.get(server.url) == (200, b"fine")
    assert client.counts() == (0, 3, 0, 0)


def test_a_request_without_a_place_is_not_charged_nor_holds_one_without_tokens(make: Make, server: Upstream) -> None:
    client, slow = make({"*": 1}, quota="2/hour", wait=0), Slow()
    server.answers(Said(body=slow))
    opened = client.open(server.url)
    assert client.get(server.url)[0] == client.refused
    slow.rest.set()
    opened.close()
    assert [client.get(server.url)[0] for _ in range(2)] == [200, client.refused]
    assert client.counts()[0] == 0


def test_a_cost_above_the_burst_is_answered(make: Make, server: Upstream) -> None:
    client = make({"*": 1}, quota="5/s", cost=lambda request: 6)
    assert client.get(server.url)[0] == client.refused
    assert (client.counts()[0], server.asked) == (0, [])


@pytest.mark.parametrize("wrong", [0, True, "10", 1.5])
def test_what_is_no_limit_is_an_error(make: Make, server: Upstream, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        make(wrong).open(server.url)


@pytest.mark.parametrize("kind", [Tasks, Tasks2, Aiohttp])
@pytest.mark.parametrize("begun", [False, True], ids=["before its response", "amid its body"])
def test_a_request_that_is_cancelled_gives_its_place_back(kind: Any, server: Upstream, begun: bool) -> None:
    client, slow = kind({"*": 1}, wait=0), Slow()
    server.says = lambda: Said(body=slow) if begun or slow.rest.wait(100) else Said()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(awaited, _cancelled, client.client, server, begun)
        assert call.result(100) == "cancelled"
    assert client.counts() == (0, 0, 0, 1)
    slow.rest.set()
    client.close()


async def _cancelled(client: Any, server: Upstream, begun: bool) -> str:
    first, is_aiohttp = asyncio.Event(), isinstance(client, aiohttp.ClientSession)

    async def read() -> None:
        async with client.get(server.url) if is_aiohttp else client.stream("GET", server.url) as response:
            async for _ in response.content.iter_any() if is_aiohttp else response.aiter_raw():
                first.set()

    task = asyncio.ensure_future(read())
    while not (first.is_set() if begun else server.asked):  # noqa: ASYNC110  the latter is another thread's
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return "cancelled" if task.cancelled() else "ended"


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_request_that_waits_in_vain_for_a_connection_is_a_drop(library: Any, server: Upstream) -> None:
    limiter, slow = KeyedConcurrencyLimiter({"*": 2}), Slow()
    inner = library.HTTPTransport(limits=library.Limits(max_connections=1), trust_env=False)
    limited = LimitedTransport(RateLimiter(MemoryStore(), "1000/s"), transport=inner, concurrency=limiter)
    server.answers(Said(body=slow))
    with library.Client(transport=limited, trust_env=False) as client, client.stream("GET", server.url):
        with pytest.raises(library.PoolTimeout):
            client.get(server.url, timeout=library.Timeout(60, pool=0.05))
        found = limiter.statistics().patterns["*"]
        assert (found.in_flight, found.dropped) == (1, 1)
        slow.rest.set()
    assert limiter.statistics().patterns["*"].in_flight == 0


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_response_that_was_made_whole_is_not_under_way(library: Any) -> None:
    inner = library.MockTransport(lambda request: library.Response(200, content=b"fine"))
    limited = LimitedTransport(RateLimiter(MemoryStore(), "1000/s"), wait=0, transport=inner, concurrency=1)
    with library.Client(transport=limited) as client:
        assert [client.get("http://a/").status_code for _ in range(2)] == [200, 200]


def test_a_limiter_of_the_other_api_is_an_error() -> None:
    for transport, rates, limiter in (
        (LimitedTransport, RateLimiter, AsyncKeyedConcurrencyLimiter),
        (AsyncLimitedTransport, AsyncRateLimiter, KeyedConcurrencyLimiter),
    ):
        with pytest.raises(TypeError, match="concurrency must be one of"):
            transport(rates(MemoryStore(), "1/s"), concurrency=limiter({"*": 1}))  # type: ignore[arg-type]


# Urgent requests pass those that came earlier, whichever library sends them
KEY = "127.0.0.1"
BATCH = 12


def by_path(request: Any) -> int:
    return 10 if "urgent" in str(request.url) else 1


@contextmanager
def all_wait(client: Client, server: Upstream, waiting: Callable[[], int]) -> Iterator[None]:
    """Twelve requests without a priority wait, and a later one that is urgent; they have come when it ends."""

    def come(path: str) -> threading.Thread:
        thread, before = threading.Thread(target=client.get, args=[server.url + path]), waiting()
        thread.start()
        await_fact(lambda: waiting() == before + 1, "it waits")
        return thread

    threads = [come("/batch") for _ in range(BATCH)] + [come("/urgent")]
    yield
    for each in threads:
        each.join(100)


def place_of_urgent(server: Upstream) -> int:
    return next(place for place, (_, path) in enumerate(server.asked) if "urgent" in path)


def test_an_urgent_request_passes_those_that_wait_for_tokens(make: Callable[..., Client], server: Upstream) -> None:
    client = make(quota="1/hour burst 20", wait=None, priority=by_path)
    call = awaited if client.is_async else lambda function, *args: function(*args)
    call(client.rates.acquire, KEY, 20)
    with all_wait(client, server, lambda: client.rates.statistics().waiting):
        call(client.rates.refund, KEY, 3)
        await_fact(lambda: len(server.asked) == 3, "three have tokens")
        assert sum("urgent" in path for _, path in server.asked) == 1
        call(client.rates.refund, KEY, BATCH - 2)


def test_an_urgent_request_passes_those_that_wait_for_a_place(make: Callable[..., Client], server: Upstream) -> None:
    client = make({"*": Keyed(1, queue=Queue(100, max_wait=None))}, wait=None, priority=by_path)
    held = threading.Event()
    server.says = lambda: Said() if held.wait(100) else Said(500)
    first = threading.Thread(target=client.get, args=[server.url])
    first.start()
    await_fact(lambda: len(server.asked) == 1, "the first is under way")
    with all_wait(client, server, lambda: client.concurrency.statistics().patterns["*"].waiting):
        held.set()
    first.join(100)
    assert place_of_urgent(server) <= 2, "every eighth place goes to who waited longest"


def test_a_limit_of_the_fleet_takes_a_priority_too(make: Callable[..., Client], server: Upstream) -> None:
    client = make(shared={"*": 1}, priority=50)
    assert client.get(server.url) == (200, b"fine")


def test_a_function_that_returns_no_priority_is_told(make: Callable[..., Client], server: Upstream) -> None:
    with pytest.raises(ValueError, match="priority must be from 1 to 100, not 101"):
        make(priority=lambda request: 101).open(server.url)
    assert server.asked == []


# Answers tell a permit of this process: 429, 503 and Retry-After are drops, with an exception and without one
RETRY = {"retry-after": "1"}


def by_httpx(url: str) -> tuple[Any, Callable[[], object]]:
    response = httpx.get(url)
    return response, response.raise_for_status


def by_requests(url: str) -> tuple[Any, Callable[[], object]]:
    response = requests.get(url, timeout=10)
    return response, response.raise_for_status


def by_aiohttp(url: str) -> tuple[Any, Callable[[], object]]:
    async def get() -> Any:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response

    response = asyncio.run(get())
    return response, response.raise_for_status


ANSWERS: list[tuple[int, dict[str, str], Outcome]] = [
    (200, {}, Outcome.SUCCESS),
    (404, {}, Outcome.SUCCESS),
    (403, RETRY, Outcome.DROPPED),
    (429, {}, Outcome.DROPPED),
    (500, {}, Outcome.IGNORED),
    (500, RETRY, Outcome.DROPPED),
    (503, {}, Outcome.DROPPED),
    (504, {}, Outcome.DROPPED),
]


@pytest.mark.parametrize("client", [by_httpx, by_requests, by_aiohttp])
@pytest.mark.parametrize(("status", "fields", "outcome"), ANSWERS)
def test_an_answer_tells_a_permit_or_by_its_exception(
    server: Upstream, client: Any, status: int, fields: dict[str, str], outcome: Outcome
) -> None:
    server.answers(Said(status, fields))
    response, raise_for_status = client(server.url)
    assert outcome_of_answer(response) is outcome
    with ConcurrencyLimiter(Fixed(5)) as limiter:
        limiter.acquire().answered(response)
        seen = limiter.statistics()
        found = {Outcome.SUCCESS: seen.succeeded, Outcome.DROPPED: seen.dropped, Outcome.IGNORED: seen.ignored}
        assert found == {each: int(each is outcome) for each in Outcome}
    if status != 200:
        with pytest.raises(Exception) as caught:  # noqa: PT011  of three packages
            raise_for_status()
        assert (classify(caught.value) is Outcome.DROPPED) == (outcome is Outcome.DROPPED)


def test_tasks_and_several_keys_say_it_alike() -> None:
    async def task() -> int:
        async with AsyncConcurrencyLimiter(Fixed(1)) as limiter:
            async with limiter.acquire() as permit:
                permit.answered(429)
            return limiter.statistics().dropped

    assert asyncio.run(task()) == 1
    with KeyedConcurrencyLimiter({"host:*": 2, "all": 10}) as keyed:
        with keyed.acquire_all(["host:a", "all"]) as permits:
            permits.answered(503)
        assert [each.dropped for each in keyed.statistics().patterns.values()] == [1, 1]


def test_an_answer_has_a_status() -> None:
    with ConcurrencyLimiter(Fixed(1)) as limiter, limiter.acquire() as permit, pytest.raises(TypeError, match="status"):
        permit.answered("429")


def test_an_error_without_an_answer_tells_nothing() -> None:
    assert classify(requests.HTTPError("none")) is Outcome.IGNORED

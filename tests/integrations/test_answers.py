"""Answers of what one calls, by real clients: 429, 503 and Retry-After are drops, with an exception and without one."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp
import httpx
import pytest
import requests

from batchlimit import AsyncConcurrencyLimiter, ConcurrencyLimiter
from batchlimit.concurrency import KeyedConcurrencyLimiter, Outcome, classify
from batchlimit.concurrency.classification import outcome_of_answer
from batchlimit.laws import AIMD, Fixed


class Upstream(BaseHTTPRequestHandler):
    """Answers with the status in the path; with Retry-After, if a query asks for it."""

    def do_GET(self) -> None:
        status, _, query = self.path[1:].partition("?")
        self.send_response(int(status))
        if query:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


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


ANSWERS = [
    ("200", Outcome.SUCCESS),
    ("404", Outcome.SUCCESS),
    ("403?retry", Outcome.DROPPED),
    ("429", Outcome.DROPPED),
    ("500", Outcome.IGNORED),
    ("500?retry", Outcome.DROPPED),
    ("503", Outcome.DROPPED),
    ("504", Outcome.DROPPED),
]


@pytest.mark.parametrize("client", [by_httpx, by_requests, by_aiohttp])
@pytest.mark.parametrize(("path", "outcome"), ANSWERS)
def test_what_an_answer_tells_a_permit_and_its_exception_too(
    url: str, client: Any, path: str, outcome: Outcome
) -> None:
    response, raise_for_status = client(f"{url}/{path}")
    assert outcome_of_answer(response) is outcome
    with ConcurrencyLimiter(Fixed(5)) as limiter:
        limiter.acquire().answered(response)
        seen = limiter.statistics()
        found = {Outcome.SUCCESS: seen.succeeded, Outcome.DROPPED: seen.dropped, Outcome.IGNORED: seen.ignored}
        assert found == {each: int(each is outcome) for each in Outcome}
    if path != "200":
        with pytest.raises(Exception) as caught:  # noqa: PT011  of three packages
            raise_for_status()
        assert (classify(caught.value) is Outcome.DROPPED) == (outcome is Outcome.DROPPED)


def test_fifty_answers_of_429_lower_the_limit(url: str) -> None:
    with ConcurrencyLimiter(AIMD(initial=100, minimum=1)) as limiter, httpx.Client() as client:
        for _ in range(50):
            with limiter.acquire() as permit:
                permit.answered(client.get(f"{url}/429"))
        assert (limiter.statistics().dropped, limiter.limit) == (50, 1)


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

"""A session over a limited adapter: what is sent and what is not."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.integrations.requests import LimitedAdapter
from batchlimit.stores import MemoryStore
from batchlimit.testing import FaultStore
from tests.integrations.test_httpx import LITTLE_IS_LEFT, REFUSED_BY_BODY, RETRY_INFO, UNREADABLE, came_of
from tests.integrations.upstream import Said, Upstream, upstream


@pytest.fixture
def server() -> Iterator[Upstream]:
    with upstream() as found:
        yield found


def session(limiter: RateLimiter, **options: Any) -> requests.Session:
    made = requests.Session()
    made.trust_env = False
    made.mount("http://", LimitedAdapter(limiter, **options))
    return made


def test_a_request_that_has_tokens_is_sent_and_its_response_is_untouched(server: Upstream) -> None:
    server.answers(Said(201, {"x-one": "two"}, [b"ma", b"de"]))
    with (
        session(RateLimiter(MemoryStore(), "1000/s")) as client,
        client.get(server.url + "/a?b=c", stream=True) as response,
    ):
        assert (response.status_code, response.headers["x-one"]) == (201, "two")
        assert b"".join(response.iter_content(2)) == b"made"
    assert server.asked == [("GET", "/a?b=c")]


@pytest.mark.parametrize("stream", [False, True])
def test_one_that_would_wait_too_long_is_not_sent_and_answered_429(server: Upstream, stream: bool) -> None:
    with session(RateLimiter(MemoryStore(), "1/hour"), wait=0.5) as client:
        assert client.get(server.url).status_code == 200
        response = client.get(server.url, stream=stream)
        assert (response.status_code, response.json()["status"], response.url) == (429, 429, server.url + "/")
        assert 3500 < int(response.headers["Retry-After"]) <= 3600
        with pytest.raises(requests.HTTPError):
            response.raise_for_status()
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_what_upstream_says_pauses_its_key(server: Upstream, status: int) -> None:
    limiter = RateLimiter(MemoryStore(), "1000/s")
    server.answers(Said(status, {"retry-after": "60"}, b"later"))
    with session(limiter, wait=0) as client:
        assert client.get(server.url).content == b"later"
        assert client.get(server.url).status_code == 429
    assert 50 < limiter.decide("127.0.0.1").retry_after <= 60.1
    assert len(server.asked) == 1


def test_where_little_is_left_calls_are_held_back_before_a_429(server: Upstream) -> None:
    server.answers(Said(200, LITTLE_IS_LEFT))
    with session(RateLimiter(MemoryStore(), "1000/s"), wait=0, observe=True) as client:
        assert [client.get(server.url).status_code for _ in range(2)] == [200, 429]
    assert len(server.asked) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_whose_body_says_when_to_come_back_is_read_and_passed_on(server: Upstream, stream: bool) -> None:
    server.answers(REFUSED_BY_BODY)
    limiter = RateLimiter(MemoryStore(), "1000/s")
    with session(limiter, observe=True) as client, client.get(server.url, stream=stream) as response:
        assert b"".join(response.iter_content(9)) == RETRY_INFO
    assert 30 < limiter.decide("127.0.0.1").retry_after <= 34.1


@pytest.mark.parametrize("said", UNREADABLE)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_whose_body_cannot_be_read_pauses_all_the_same_and_its_caller_gets_it_as_ever(
    server: Upstream, said: Said, stream: bool
) -> None:
    def got(client: requests.Session) -> Any:
        with client.get(server.url, stream=stream) as response:
            parts: list[bytes] = []
            error = came_of(lambda: parts.extend(response.iter_content(9)))
        return response.status_code, b"".join(parts), error

    server.answers(said, said)
    limiter = RateLimiter(MemoryStore(), "1000/s")
    with requests.Session() as plain, session(limiter, wait=0, observe=True, unsaid=60) as client:
        plain.trust_env = False
        assert came_of(lambda: got(client)) == came_of(lambda: got(plain))
    assert 50 < limiter.decide("127.0.0.1").retry_after <= 60.1


def test_while_the_store_is_away_a_request_is_answered_503(server: Upstream) -> None:
    with session(RateLimiter(FaultStore(down=True), "1/s"), wait=0) as client:
        assert client.get(server.url).status_code == 503
    assert server.asked == []


def test_each_redirect_is_charged(server: Upstream) -> None:
    server.answers(Said(302, {"location": "/elsewhere"}), Said(302, {"location": "/again"}))
    with session(RateLimiter(MemoryStore(), "2/hour"), wait=0) as client:
        assert client.get(server.url).status_code == 429
    assert len(server.asked) == 2


def test_a_limiter_of_the_other_api_is_an_error() -> None:
    with pytest.raises(TypeError, match="RateLimiter"):
        LimitedAdapter(AsyncRateLimiter.from_url("memory://", "1/s"))  # type: ignore[arg-type]

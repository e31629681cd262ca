"""What is sent and what is not, whichever library sends it."""

import gzip
import json
from collections.abc import Callable
from typing import Any
from unittest import mock

import aiohttp
import pytest
from botocore.awsrequest import AWSResponse

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.integrations.aiohttp_client import LimitedClient
from batchlimit.integrations.botocore import _Nothing, limit_client
from batchlimit.stores import MemoryStore
from tests.awaiting import awaited
from tests.integrations.outgoing.clients import CLIENTS, Botocore, Client, Niquests, Requests
from tests.integrations.outgoing.upstream import Said, Upstream

Make = Callable[..., Client]
LITTLE_IS_LEFT = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "6m0s",
}
RETRY_INFO = json.dumps(
    {"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}]}}
).encode()
REFUSED_BY_BODY = Said(429, {"content-type": "application/json; charset=UTF-8"}, RETRY_INFO)
JSON = {"content-type": "application/json"}
UNREADABLE = [
    pytest.param(Said(429, JSON | {"content-encoding": "gzip"}, b"no gzip"), id="broken gzip"),
    pytest.param(Said(429, JSON | {"content-encoding": "gzip"}, gzip.compress(RETRY_INFO)[:40]), id="half of a gzip"),
    pytest.param(Said(429, JSON, [b'{"error":', None]), id="truncated"),
    pytest.param(Said(429, {"content-type": "application/json; charset=utf-16"}, b"\xff{"), id="another charset"),
]
"""Refusals whose body nobody can read, or not as JSON."""
OF_ANY_URL = pytest.mark.parametrize(
    "make", [each for each in CLIENTS if each is not Botocore], indirect=True, ids=lambda kind: kind.__name__.lower()
)
"""AWS has paths of its own, and its client keeps the body of a refusal to itself."""


def came_of(work: Callable[[], Any]) -> Any:
    """Return what came of a call, or of which class its error is."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001  of whatever library
        return type(error)


def statuses(client: Client, url: str, times: int) -> list[int]:
    return [client.get(url)[0] for _ in range(times)]


def test_a_request_that_has_tokens_is_sent_and_its_response_is_untouched(make: Make, server: Upstream) -> None:
    server.answers(Said(200, {"x-one": "two"}, [b"ma", b"de"]))
    opened = make().open(server.url)
    assert (opened.status, opened.headers["x-one"], opened.read()) == (200, "two", b"made")
    opened.close()
    assert len(server.asked) == 1


def test_a_request_that_would_wait_too_long_is_not_sent_and_answered(make: Make, server: Upstream) -> None:
    client = make(quota="1/hour", wait=0.5)
    assert client.get(server.url)[0] == 200
    refused = client.open(server.url)
    assert (refused.status, refused.headers["x-batchlimit"]) == (client.refused, "not sent")
    assert 3500 < int(refused.headers["retry-after"]) <= 3600
    refused.close()
    assert len(server.asked) == 1


@pytest.mark.parametrize("make", [Requests, Niquests], indirect=True)
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_is_not_sent_has_a_response_of_the_library(make: Make, server: Upstream, stream: bool) -> None:
    client: Any = make(quota="0/s", wait=0)
    response = client.client.get(server.url, stream=stream)
    assert (response.json()["status"], response.url.rstrip("/")) == (429, server.url)
    with pytest.raises(OSError, match="429"):
        response.raise_for_status()


@OF_ANY_URL
def test_a_cost_above_the_burst_is_answered_and_one_of_the_code_is_an_error(make: Make, server: Upstream) -> None:
    refused = make(quota="5/s", cost=lambda request: 6).open(server.url)
    assert (refused.status, refused.headers["x-should-retry"]) == (429, "false")
    assert refused.headers["content-type"] == "application/problem+json"
    assert "6 tokens never fit a burst of 5" in json.loads(refused.read())["detail"]
    refused.close()
    with pytest.raises(ValueError, match="6 tokens never fit a burst of 5"):
        make(quota="5/s", cost=6).open(server.url)
    assert server.asked == []


def test_a_request_waits_for_its_tokens(make: Make, server: Upstream) -> None:
    assert statuses(make(quota="20/s burst 1"), server.url, 3) == [200] * 3


@pytest.mark.parametrize("status", [429, 503])
def test_what_upstream_says_pauses_its_key(make: Make, server: Upstream, status: int) -> None:
    client = make(wait=0)
    server.answers(Said(status, {"retry-after": "60"}, b"later"))
    told, body = client.get(server.url)
    assert (told, body in (b"later", b"")) == (status, True)
    assert 50 < client.retry_after() <= 60.1
    assert client.get(server.url)[0] == client.refused
    assert len(server.asked) == 1


@OF_ANY_URL
def test_one_key_is_paused_and_no_other(make: Make, server: Upstream) -> None:
    client = make(wait=0, key="{host}{path}")
    server.answers(Said(429, {"retry-after": "60"}, b"later"))
    assert client.get(server.url + "/a?b=c") == (429, b"later")
    assert client.get(server.url + "/b")[0] == 200
    assert server.asked == [("GET", "/a?b=c"), ("GET", "/b")]


@pytest.mark.parametrize("observes", [False, True])
def test_a_client_that_observes_is_held_back_where_little_is_left(make: Make, server: Upstream, observes: bool) -> None:
    server.answers(Said(200, LITTLE_IS_LEFT))
    client = make(wait=0, observe=observes)
    assert statuses(client, server.url, 2) == [200, client.refused if observes else 200]
    assert (50 < client.retry_after() <= 60.1) == observes
    assert len(server.asked) == 1 + (not observes)


@OF_ANY_URL
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_refusal_whose_body_says_when_to_come_back_is_passed_on(make: Make, server: Upstream, encoding: str) -> None:
    sent = gzip.compress(RETRY_INFO) if encoding == "gzip" else RETRY_INFO
    server.answers(Said(429, REFUSED_BY_BODY.headers | {"content-encoding": encoding}, [sent[:9], sent[9:]]))
    client = make(wait=0, observe=True)
    assert client.get(server.url) == (429, RETRY_INFO)
    assert 30 < client.retry_after() <= 34.1


@pytest.mark.parametrize("make", [Requests, Niquests], indirect=True, ids=["requests", "niquests"])
def test_a_refusal_whose_body_was_read_is_streamed_raw_and_sets_cookies(make: Make, server: Upstream) -> None:
    packed = gzip.compress(RETRY_INFO)
    headers = REFUSED_BY_BODY.headers | {"content-encoding": "gzip", "set-cookie": "seen=yes"}
    server.answers(Said(429, headers, [packed[:9], packed[9:]]))
    client: Any = make(wait=0, observe=True)
    raw = client.client.get(server.url, stream=True).raw
    assert (raw.read(5) + raw.read(), dict(client.client.cookies)) == (packed, {"seen": "yes"})


@pytest.mark.parametrize("said", UNREADABLE)
def test_a_refusal_with_an_unreadable_body_pauses_all_the_same(make: Make, server: Upstream, said: Said) -> None:
    server.answers(said, said)
    client, plain = make(wait=0, observe=True, unsaid=60), make(is_limited=False)
    assert came_of(lambda: client.get(server.url)) == came_of(lambda: plain.get(server.url))
    assert 50 < client.retry_after() <= 60.1


@pytest.mark.parametrize("make", [Botocore], indirect=True)
def test_a_call_of_aws_is_sent_once_behind_two_limits_and_not_if_a_handler_answers(make: Any, server: Upstream) -> None:
    client, second = make({"*": 5}, quota="9/hour"), RateLimiter(MemoryStore(), "9/hour")
    of_aws = client.client(server.url)
    limit_client(of_aws, second, concurrency=5)
    assert client.get(server.url) == (200, b"fine")
    assert client.counts() == (0, 1, 0, 0)
    answer = AWSResponse(server.url, 404, {}, _Nothing())
    with mock.patch("botocore.httpsession.URLLib3Session.send", return_value=answer):
        assert client.get(server.url)[0] == 404
    of_aws.meta.events.register("before-send", lambda **_: answer)
    assert client.get(server.url)[0] == 404  # as moto answers
    left = [limiter.peek("127.0.0.1").remaining for limiter in (client.rates, second)]
    assert (left, len(server.asked)) == ([7, 7], 1)


def test_while_the_store_is_away_a_request_is_answered_503(make: Make, server: Upstream) -> None:
    assert make(is_away=True, wait=0).get(server.url)[0] == 503
    assert server.asked == []


def test_a_limiter_of_the_other_api_is_an_error(make: Make) -> None:
    kinds: list[Any] = [RateLimiter, AsyncRateLimiter]
    mine, other = reversed(kinds) if make(is_limited=False).is_async else kinds
    with pytest.raises(TypeError, match=f"needs limiter={mine.__name__}"):
        make(rates=other.from_url("memory://", "1/s")).open("http://127.0.0.1:1")


@OF_ANY_URL
@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://api.example.com", "GET http api.example.com  /"),
        ("http://API.Example.com:80/v1?page=2#top", "GET http api.example.com  /v1"),
        ("http://api.example.com:8080/a/../b", "GET http api.example.com 8080 /b"),
        ("http://user:secret@api.example.com/", "GET http api.example.com  /"),
        ("http://www.b\u00fccher.example/gr\u00f6\u00dfe", "GET http www.xn--bcher-kva.example  /gr\u00f6\u00dfe"),
        ("http://b\u00fccher.example/a%20b%2Fc d", "GET http xn--bcher-kva.example  /a b/c d"),
        ("http://api.example.com/%C3%BC%FF[x]", "GET http api.example.com  /\u00fc\ufffd[x]"),
        ("http://[::1]:8080/", "GET http ::1 8080 /"),
    ],
)
def test_all_name_a_request_alike(make: Make, server: Upstream, url: str, key: str) -> None:
    """The server is a proxy here, which is asked for URLs of any host."""
    keys: list[str] = []

    def quota(asked: str) -> str:
        keys.append(asked)
        return "1000/s"

    client = make(quota=quota, key="{method} {scheme} {host} {port} {path}", wait=0, proxy=server.url)
    assert client.get(url)[0] == 200
    assert (keys, len(server.asked)) == ([key], 1)


@OF_ANY_URL
@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_what_is_answered_has_a_reason_and_a_body_but_for_a_head(make: Make, server: Upstream, method: str) -> None:
    refused = make(quota="0/s", wait=0).open(server.url, method)
    assert (refused.status, refused.reason, bool(refused.read())) == (429, "Too Many Requests", method == "GET")
    refused.close()
    assert server.asked == []


def test_a_request_that_is_not_sent_is_answered_as_the_library_would(server: Upstream) -> None:
    async def main() -> None:
        limited = LimitedClient(AsyncRateLimiter(MemoryStore(), "0/s"), wait=0)
        async with aiohttp.ClientSession(middlewares=(limited,)) as session:
            async with session.post(server.url, data=b"a body") as response:
                assert (response.status, response.reason, response.ok) == (429, "Too Many Requests", False)
                assert [part async for part in response.content.iter_any()] != []
                with pytest.raises(aiohttp.ClientResponseError, match="429"):
                    response.raise_for_status()
            with pytest.raises(aiohttp.ClientResponseError) as refused:
                await session.get(server.url, raise_for_status=True)
            assert refused.value.status == 429
            assert refused.value.headers is not None
            assert refused.value.headers["x-batchlimit"] == "not sent"

    awaited(main)
    assert server.asked == []

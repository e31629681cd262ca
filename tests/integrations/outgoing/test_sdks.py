"""The SDKs of OpenAI, Anthropic and Google over a limited transport, and a server that speaks their wire formats."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai.types import HttpOptions, HttpRetryOptions

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.integrations.httpx import AsyncLimitedTransport, LimitedTransport
from batchlimit.stores import MemoryStore
from tests.awaiting import awaited
from tests.integrations.outgoing.test_outgoing import REFUSED_BY_BODY
from tests.integrations.outgoing.upstream import Said, Upstream

JSON = {"content-type": "application/json"}
SSE = {"content-type": "text/event-stream"}


def _json(told: dict[str, Any]) -> Said:
    return Said(200, JSON, json.dumps(told).encode())


CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "fine"}}
CHAT = _json({"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [CHOICE]})
TEXT = {"type": "text", "text": "fine"}
MESSAGE = _json({"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [TEXT]})
PART = {"candidates": [{"content": {"role": "model", "parts": [{"text": "fine"}]}, "finishReason": "STOP"}]}
CONTENT = _json(PART)
CHUNK = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
STREAM = [
    b"data: %s\n\n" % json.dumps({**CHUNK, "choices": [{"index": 0, "delta": {"content": word}}]}).encode()
    for word in ("fi", "ne")
] + [b"data: [DONE]\n\n"]
TOO_MANY = Said(429, {"retry-after-ms": "50", "retry-after": "1"} | JSON, b'{"error":{"message":"too many"}}')
MESSAGES: Any = [{"role": "user", "content": "hello"}]


class Sdk(NamedTuple):
    """An SDK: a right answer, its error of a refusal, what makes a client, and what calls it."""

    right: Said
    error: type[Exception]
    make: Callable[[Any, str], Any]
    ask: Callable[[Any], str | None]


def _gemini(http: Any, url: str) -> genai.Client:
    retries = HttpRetryOptions(attempts=2, initial_delay=0.01)
    return genai.Client(api_key="k", http_options=HttpOptions(base_url=url, httpx_client=http, retry_options=retries))


_CHAT: Any = {"model": "m", "messages": MESSAGES}
SDKS = {
    "openai": Sdk(
        CHAT,
        openai.RateLimitError,
        lambda http, url: openai.OpenAI(api_key="k", base_url=url, http_client=http),
        lambda client: client.chat.completions.create(**_CHAT).choices[0].message.content,
    ),
    "openai-async": Sdk(
        CHAT,
        openai.RateLimitError,
        lambda http, url: openai.AsyncOpenAI(api_key="k", base_url=url, http_client=http),
        lambda client: awaited(client.chat.completions.create, **_CHAT).choices[0].message.content,
    ),
    "anthropic": Sdk(
        MESSAGE,
        anthropic.RateLimitError,
        lambda http, url: anthropic.Anthropic(api_key="k", base_url=url, http_client=http),
        lambda client: client.messages.create(**_CHAT, max_tokens=9).content[0].text,
    ),
    "gemini": Sdk(
        CONTENT,
        genai.errors.ClientError,
        _gemini,
        lambda client: client.models.generate_content(model="m", contents="hello").text,
    ),
}


@pytest.fixture(params=SDKS)
def name(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def make(server: Upstream) -> Iterator[Any]:
    """Makes clients of an SDK, and closes them."""
    opened: list[Any] = []

    def made(name: str, quota: str, **options: Any) -> Any:
        if name == "openai-async":
            tasks = AsyncLimitedTransport(AsyncRateLimiter(MemoryStore(), quota), **options)
            http: Any = httpx2.AsyncClient(transport=tasks, trust_env=False)
        else:
            threads = LimitedTransport(RateLimiter(MemoryStore(), quota), **options)
            http = httpx2.Client(transport=threads, trust_env=False)
        opened.append(http)
        return SDKS[name].make(http, server.url)

    yield made
    for each in opened:
        awaited(each.aclose) if isinstance(each, httpx2.AsyncClient) else each.close()


def test_a_429_is_waited_out_by_the_fleet_and_retried_by_the_sdk(make: Any, name: str, server: Upstream) -> None:
    sdk = SDKS[name]
    server.answers(TOO_MANY, sdk.right)
    assert sdk.ask(make(name, "1000/s")) == "fine"
    assert len(server.asked) == 2


def test_a_call_that_is_not_sent_is_a_rate_limit_error_to_the_sdk(make: Any, name: str, server: Upstream) -> None:
    """The SDK hears that it is not to come back."""
    error: Any = SDKS[name].error
    with pytest.raises(error) as refused:
        SDKS[name].ask(make(name, "0/s", wait=0))
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert refused.value.response.headers["x-batchlimit"] == "not sent"
    assert server.asked == []


def test_a_stream_comes_through(make: Any, server: Upstream) -> None:
    server.answers(Said(200, SSE, STREAM))
    stream = make("openai", "1000/s").chat.completions.create(**_CHAT, stream=True)
    assert "".join(each.choices[0].delta.content or "" for each in stream) == "fine"


def test_gemini_says_in_the_body_when_to_come_back_and_its_sdk_reads_it_all_the_same(server: Upstream) -> None:
    """The SDK itself reads neither that nor `Retry-After`."""
    limiter = RateLimiter(MemoryStore(), "1000/s")
    http = httpx2.Client(transport=LimitedTransport(limiter, wait=0, observe=True), trust_env=False)
    client = genai.Client(api_key="k", http_options=HttpOptions(base_url=server.url, httpx_client=http))
    server.answers(CONTENT, REFUSED_BY_BODY)
    assert client.models.generate_content(model="m", contents="hello").text == "fine"
    with pytest.raises(genai.errors.ClientError) as refused:
        client.models.generate_content(model="m", contents="hello")
    assert "retryDelay" in str(refused.value)
    assert 30 < limiter.decide("127.0.0.1").retry_after <= 34.1
    with pytest.raises(genai.errors.ClientError, match="429"):
        client.models.generate_content(model="m", contents="hello")
    assert len(server.asked) == 2
    http.close()

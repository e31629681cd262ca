"""The SDKs of OpenAI, Anthropic and Google over a limited transport, and a server that speaks their wire formats."""

import json
from collections.abc import Iterator
from typing import Any

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
from tests.integrations.outgoing.test_outgoing import LITTLE_IS_LEFT, REFUSED_BY_BODY
from tests.integrations.outgoing.upstream import Said, Upstream

JSON = {"content-type": "application/json"}
SSE = {"content-type": "text/event-stream"}


def _json(told: dict[str, Any]) -> Said:
    return Said(200, JSON, json.dumps(told).encode())


CHAT = _json(
    {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "fine"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
)
MESSAGE = _json(
    {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "fine"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
)
PART = {"candidates": [{"content": {"role": "model", "parts": [{"text": "fine"}]}, "finishReason": "STOP"}]}
CONTENT = _json(PART)
CHUNK = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
STREAM = [
    b"data: "
    + json.dumps({**CHUNK, "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}).encode()
    + b"\n\n"
    for word in ("fi", "ne")
] + [b"data: [DONE]\n\n"]
TOO_MANY = Said(429, {"retry-after-ms": "50", "retry-after": "1"} | JSON, b'{"error":{"message":"too many"}}')
MESSAGES: Any = [{"role": "user", "content": "hello"}]


class _OpenAI:
    right, error = CHAT, openai.RateLimitError

    def __init__(self, limiter: RateLimiter, url: str, **options: Any) -> None:
        http = httpx2.Client(transport=LimitedTransport(limiter, **options), trust_env=False)
        self.client = openai.OpenAI(api_key="k", base_url=url, http_client=http)

    def ask(self) -> str | None:
        return self.client.chat.completions.create(model="m", messages=MESSAGES).choices[0].message.content


class _AsyncOpenAI:
    right, error = CHAT, openai.RateLimitError

    def __init__(self, limiter: AsyncRateLimiter, url: str, **options: Any) -> None:
        http = httpx2.AsyncClient(transport=AsyncLimitedTransport(limiter, **options), trust_env=False)
        self.client = openai.AsyncOpenAI(api_key="k", base_url=url, http_client=http)

    def ask(self) -> str | None:
        answer = awaited(self.client.chat.completions.create, model="m", messages=MESSAGES)
        content: str | None = answer.choices[0].message.content
        return content


class _Anthropic:
    right, error = MESSAGE, anthropic.RateLimitError

    def __init__(self, limiter: RateLimiter, url: str, **options: Any) -> None:
        http = httpx2.Client(transport=LimitedTransport(limiter, **options), trust_env=False)
        self.client = anthropic.Anthropic(api_key="k", base_url=url, http_client=http)

    def ask(self) -> str:
        (block,) = self.client.messages.create(model="m", max_tokens=9, messages=MESSAGES).content
        assert block.type == "text"
        return block.text


class _Gemini:
    right, error = CONTENT, genai.errors.ClientError

    def __init__(self, limiter: RateLimiter, url: str, **options: Any) -> None:
        self.http = httpx2.Client(transport=LimitedTransport(limiter, **options), trust_env=False)
        retries = HttpRetryOptions(attempts=2, initial_delay=0.01)
        made = HttpOptions(base_url=url, httpx_client=self.http, retry_options=retries)
        self.client = genai.Client(api_key="k", http_options=made)

    def ask(self) -> str | None:
        return self.client.models.generate_content(model="m", contents="hello").text


@pytest.fixture(
    params=[_OpenAI, _AsyncOpenAI, _Anthropic, _Gemini], ids=["openai", "openai-async", "anthropic", "gemini"]
)
def sdk(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def make(server: Upstream) -> Iterator[Any]:
    """Makes clients of an SDK, and closes them."""
    opened: list[Any] = []

    def made(sdk: Any, quota: str, **options: Any) -> Any:
        kind: Any = AsyncRateLimiter if sdk is _AsyncOpenAI else RateLimiter
        opened.append(sdk(kind(MemoryStore(), quota), server.url, **options))
        return opened[-1]

    yield made
    for each in opened:
        awaited(each.client.close) if isinstance(each, _AsyncOpenAI) else each.client.close()
        if isinstance(each, _Gemini):  # whose SDK does not close what it is given
            each.http.close()


def test_a_call_is_answered(make: Any, sdk: Any, server: Upstream) -> None:
    server.answers(sdk.right)
    assert make(sdk, "1000/s").ask() == "fine"


def test_a_429_of_upstream_is_waited_out_by_the_fleet_and_retried_by_the_sdk(
    make: Any, sdk: Any, server: Upstream
) -> None:
    server.answers(TOO_MANY, sdk.right)
    assert make(sdk, "1000/s").ask() == "fine"
    assert len(server.asked) == 2


def test_a_call_that_is_not_sent_is_a_rate_limit_error_to_the_sdk_and_no_lost_connection(
    make: Any, sdk: Any, server: Upstream
) -> None:
    """It hears that it is not to come back."""
    made = make(sdk, "0/s", wait=0)
    with pytest.raises(sdk.error) as refused:
        made.ask()
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert refused.value.response.headers["x-batchlimit"] == "not sent"
    assert server.asked == []


def test_a_stream_comes_through(make: Any, server: Upstream) -> None:
    server.answers(Said(200, SSE, STREAM))
    made = make(_OpenAI, "1000/s")
    stream = made.client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    assert "".join(each.choices[0].delta.content or "" for each in stream) == "fine"


ANSWER = _json({"candidates": [{"content": {"role": "model", "parts": [{"text": "fine"}]}}]})


def test_a_stream_of_gemini_comes_through(make: Any, server: Upstream) -> None:
    server.answers(Said(200, SSE, [b"data: " + json.dumps(PART).encode() + b"\n\n"] * 2))
    stream = make(_Gemini, "1000/s").client.models.generate_content_stream(model="m", contents="hello")
    assert "".join(each.text for each in stream) == "finefine"


def test_gemini_says_in_the_body_when_to_come_back_and_its_sdk_reads_it_all_the_same(server: Upstream) -> None:
    """The SDK itself reads neither that nor `Retry-After`."""
    limiter = RateLimiter(MemoryStore(), "1000/s")
    http = httpx2.Client(transport=LimitedTransport(limiter, wait=0, observe=True), trust_env=False)
    client = genai.Client(api_key="k", http_options=HttpOptions(base_url=server.url, httpx_client=http))
    server.answers(ANSWER, REFUSED_BY_BODY)
    assert client.models.generate_content(model="m", contents="hello").text == "fine"
    with pytest.raises(genai.errors.ClientError) as refused:
        client.models.generate_content(model="m", contents="hello")
    assert "retryDelay" in str(refused.value)
    assert 30 < limiter.decide("127.0.0.1").retry_after <= 34.1
    with pytest.raises(genai.errors.ClientError, match="429"):
        client.models.generate_content(model="m", contents="hello")
    assert len(server.asked) == 2
    http.close()


def test_openai_tells_what_is_left_and_calls_are_held_back(make: Any, server: Upstream) -> None:
    server.answers(Said(200, JSON | LITTLE_IS_LEFT, CHAT.body))
    made = make(_OpenAI, "1000/s", wait=0, observe=True)
    made.client.max_retries = 0
    assert made.ask() == "fine"
    with pytest.raises(openai.RateLimitError):
        made.ask()
    assert len(server.asked) == 1

"""Spans hear of calls that wait or are refused, of limiters that are traced, and never of a key."""

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from batchlimit import AsyncRateLimiter, RateLimited, RateLimiter
from batchlimit.telemetry.traces import trace
from tests.sync.stage import until

TRACER = TracerProvider().get_tracer("tests")
HOURLY = "2/hour"
SOON = "50/s burst 1"


def names(span: Any) -> list[str]:
    return [event.name.removeprefix("batchlimit.") for event in span.events]


def test_a_refusal_is_an_event_and_an_admission_is_none() -> None:
    with RateLimiter.from_url("memory://", HOURLY) as limiter, TRACER.start_as_current_span("work") as span:
        trace(limiter, name="api", longer_than=60)
        assert [limiter.try_acquire("secret") for _ in range(3)] == [True, True, False]
        with pytest.raises(RateLimited):
            limiter.acquire("secret", timeout=0)
        assert names(span) == ["refused", "refused"]
        told: Any = [dict(event.attributes or {}) for event in span.events]  # type: ignore[attr-defined]
    assert told[0] == {"batchlimit.limiter": "api", "batchlimit.error": ""}
    assert told[1]["batchlimit.error"] == "RateLimited"
    assert told[1]["batchlimit.retry_after"] > 1000
    assert "secret" not in str(told)


def test_a_wait_is_an_event_with_its_seconds() -> None:
    with RateLimiter.from_url("memory://", SOON) as limiter, TRACER.start_as_current_span("work") as span:
        trace(limiter)
        limiter.acquire_all({"ann": 1})
        before = len(names(span))

        def has_waited() -> bool:
            """Where the machine stalled there was a token again."""
            limiter.acquire("ann")
            return names(span)[before:] == ["waited"]

        until(has_waited)
        told: Any = span.events[-1].attributes  # type: ignore[attr-defined]
        assert told["batchlimit.seconds"] > 0.001


def test_tasks_are_traced_alike() -> None:
    async def work() -> list[str]:
        async with AsyncRateLimiter.from_url("memory://", HOURLY) as limiter:
            trace(limiter, longer_than=60)
            with TRACER.start_as_current_span("work") as span:
                assert [await limiter.try_acquire("ann") for _ in range(3)] == [True, True, False]
                with pytest.raises(RateLimited):
                    await limiter.acquire("ann", timeout=0)
                with pytest.raises(RateLimited):
                    await limiter.acquire_all({"ann": 1}, timeout=0)
                return names(span)

    assert asyncio.run(work()) == ["refused"] * 3


def test_other_limiters_are_not_traced() -> None:
    with RateLimiter.from_url("memory://", HOURLY) as one, RateLimiter.from_url("memory://", HOURLY) as other:
        trace(one)
        assert "try_acquire" not in vars(other)


def test_what_is_no_rate_limiter_cannot_be_traced() -> None:
    with pytest.raises(TypeError, match="cannot be traced"):
        trace(3)

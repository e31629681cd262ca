"""What an error carries for whoever handles it, on both APIs."""

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from batchlimit import ConcurrencyLimited, Decision, Quota, RateLimited, RateLimiter, StoreUnavailable
from batchlimit.base.redaction import escaped
from batchlimit.batching import FixedBatch
from batchlimit.bucket.messages import Ask
from batchlimit.errors import BucketUnavailable, PermitLost
from batchlimit.events import log_event, show_keys
from batchlimit.rules import Request, Rule, Rules
from batchlimit.stores import MemoryStore, RedisStore
from batchlimit.stores.client.diagnosis import failure
from tests.apis.blocking import Api, Blocking
from tests.hostile import HOSTILE, obeyed
from tests.sync.stage import KEY, Clock, Stage, nothing

Call = Callable[[RateLimiter | Blocking], object]

REFUSED: dict[str, Call] = {
    "acquire": lambda limiter: limiter.acquire(KEY, 3, timeout=0),
    "acquire_all": lambda limiter: limiter.acquire_all({KEY: 3}, timeout=0),
    "acquire_all of two": lambda limiter: limiter.acquire_all({"another": 1, KEY: 3}, timeout=0),
    "acquire_all in time": lambda limiter: limiter.acquire_all({"another": 1, KEY: 3}, timeout=0.5),
    "reserve": lambda limiter: limiter.reserve(KEY, 3, timeout=0).__enter__(),
}


def _dry(api: Api, clock: Clock) -> RateLimiter | Blocking:
    limiter = api(MemoryStore(clock), "1/s burst 10", sizer=FixedBatch(1), clock=clock)
    limiter.acquire(KEY, 10)
    assert not limiter.try_acquire(KEY, 3)
    return limiter


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_a_refusal_carries_its_key_and_decision(api: Api, clock: Clock, without_refresher: None, call: Call) -> None:
    with _dry(api, clock) as limiter:
        expected = limiter.decide(KEY, 3)
        with pytest.raises(RateLimited) as caught:
            call(limiter)
        error = caught.value
        assert (error.key, error.retry_after, error.retry_after_seconds) == (KEY, expected.retry_after, 3)
        assert error.decision == expected
        assert (error.decision.allowed, error.decision.limit, error.decision.remaining) == (False, 10, 0)


def full() -> None:
    raise StoreUnavailable("full", code="OOM")


def carried(error: Any) -> tuple[str, str, str]:
    return error.key, error.address, error.code


FAILED: dict[str, Call] = {
    "acquire": lambda limiter: limiter.acquire(KEY, timeout=0),
    "decide": lambda limiter: limiter.decide(KEY),
    "peek": lambda limiter: limiter.peek(KEY),
    "acquire_all": lambda limiter: limiter.acquire_all({"another": 0, KEY: 1}, timeout=0),
}


@pytest.mark.parametrize("call", FAILED.values(), ids=FAILED)
@pytest.mark.parametrize("kind", [StoreUnavailable, BucketUnavailable])
def test_a_failure_carries_what_failed(api: Api, clock: Clock, without_refresher: None, call: Call, kind: Any) -> None:
    def fail() -> None:
        raise kind("full", code="OOM") from OSError("disk")

    stage = Stage(MemoryStore(clock))
    stage.before = stage.before_peek = fail
    with api(stage, "1/s", clock=clock) as limiter:
        with pytest.raises(StoreUnavailable) as caught:
            call(limiter)
        stage.before = stage.before_peek = nothing
    assert (type(caught.value), type(caught.value.__cause__)) == (kind, OSError)
    assert carried(caught.value) == (KEY, "stage://", "OOM")


@pytest.mark.parametrize("call", FAILED.values(), ids=FAILED)
def test_a_failure_of_an_open_circuit_carries_them(api: Api, clock: Clock, without_refresher: None, call: Call) -> None:
    stage = Stage(MemoryStore(clock))
    stage.before = stage.before_probe = full
    with api(stage, "1/s", clock=clock) as limiter:
        for n in range(3):
            assert not limiter.try_acquire(f"another {n}")
        with pytest.raises(StoreUnavailable) as caught:
            call(limiter)
        stage.before = stage.before_probe = nothing
    assert type(caught.value) is StoreUnavailable
    assert carried(caught.value) == (KEY, "stage://", "OOM")


def test_a_refund_that_does_not_arrive_carries_them(api: Api, clock: Clock, without_refresher: None) -> None:
    stage = Stage(MemoryStore(clock))
    with api(stage, "1/s burst 10", clock=clock, sizer=FixedBatch(1)) as limiter:
        limiter.acquire(KEY, 10)
        clock.now += 1000.0
        stage.before_back = full
        with pytest.raises(StoreUnavailable) as caught:
            limiter.refund(KEY, 10)
        stage.before_back = nothing
    assert carried(caught.value) == (KEY, "stage://", "OOM")


@pytest.mark.usefixtures("far_away")
def test_a_bucket_that_somebody_gave_a_rate_of_0_is_an_error_that_says_so(api: Api, valkey_store: RedisStore) -> None:
    """No limiter writes one. It is an hour old, for of two quotas the younger one counts."""
    passed = 0.0
    with api(valkey_store, "100/s", clock=lambda: time.monotonic() + passed) as limiter:
        passed = 3600.0
        assert limiter.try_acquire("another")
        valkey_store.take(KEY, Quota(0.0), Ask("somebody", 1, need=0, queued=0, want=0))
        assert not limiter.try_acquire(KEY)
        for call in (limiter.decide, limiter.acquire):
            with pytest.raises(BucketUnavailable, match="its quota is '0/s', which no limiter writes: delete it"):
                call(KEY)
        limiter.refund(KEY)
        limiter.peek(KEY)
        assert limiter.try_acquire("another")
        assert limiter.statistics().available


@pytest.mark.parametrize(
    ("retry_after", "header"),
    [(0.0, 0), (0.000_1, 1), (0.999, 1), (1.0, 1), (1.001, 2), (86_399.5, 86_400), (math.inf, None), (None, None)],
)
def test_a_retry_after_header_is_in_whole_seconds_rounded_up(retry_after: float | None, header: int | None) -> None:
    assert ConcurrencyLimited("limit", retry_after, limit=1, in_flight=1).retry_after_seconds == header
    if retry_after is not None:
        assert RateLimited("k", retry_after).retry_after_seconds == header
        assert Decision(False, 1, 0, retry_after, 1.0, "local").retry_after_seconds == header


# What a stranger chose stands escaped in errors, in explanations for people and in the log
RULES = Rules([Rule("user", "5/s", key="user:{user}"), Rule("item", "5/s", key="item:{id}", match="/items/{id}")])


@given(st.text())
def test_what_is_escaped_is_one_printable_line_and_printable_text_stays(text: str) -> None:
    assert escaped(text).isprintable()
    assert escaped(escaped(text)) == escaped(text)
    assert escaped(text) == text or not text.isprintable()


def of_error(make: Callable[[str], object]) -> Callable[[str], str]:
    def told(text: str) -> str:
        with pytest.raises((ValueError, TypeError, LookupError)) as error:
            make(text)
        return str(error.value)

    return told


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize(
    "told",
    [
        lambda text: str(RateLimited(text, 1.0)),
        lambda text: str(ConcurrencyLimited("limit", 1.0, limit=1, in_flight=1, key=text)),
        lambda text: str(PermitLost(text, 7)),
        lambda text: str(failure(redis.ResponseError(text), "redis://h")),
        lambda text: str(RULES.explain(Request(text, f"/items/{text}", {"user": text}))),
        lambda text: str(RateLimiter.from_url("memory://", "5/s").rules.explain(text)),
        lambda text: str(RULES.applicable(Request("GET", "/", {"user": [text]})).unmade[0].reason),
        of_error(Quota.parse),
        of_error(lambda text: RateLimiter.from_url(text, "5/s")),
        of_error(lambda text: RateLimiter.from_url("memory://", {text: "5/furlong"})),
        of_error(RULES.asked),
        of_error(lambda text: Rule(text + " ", "5/s", key="all")),
        of_error(lambda text: Rule("x", "5/s", key=f"{{{text}}}")),
        of_error(lambda text: Rule("x", "5/s", key="all", match=f"x{text}")),
        of_error(lambda text: Rules.loads(f"rules: [{{name: x{text}, ", format="yaml", source=text)),
        of_error(lambda text: Rules.loads(f"rules = [{{name = '''x{text}''', ", format="toml", source=text)),
    ],
)
def test_errors_and_explanations_are_printed_escaped(told: Callable[[str], str], text: str) -> None:
    assert obeyed(told(text)) == set()


class Odd:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_log_message_is_one_line_that_a_terminal_does_not_obey(text: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "batchlimit"):
        show_keys()
        try:
            for argument in (text, ValueError(text), Odd(text)):
                log_event("tokens.not_returned", "%s %r %d", argument, argument, 7, key=text, reason=text)
        finally:
            show_keys(False)
    for record in caplog.records:
        assert record.getMessage().endswith(" 7")
        fields = [value for name, value in vars(record).items() if name.startswith("batchlimit_")]
        assert [each for each in (record.getMessage(), *fields) if not each.isprintable()] == []

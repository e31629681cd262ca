"""What upstreams say of when to come back, with all the traps that were seen; and what a request in vain is told."""

import json
import math
import time
from collections.abc import Iterator
from typing import Any

import pytest

from batchlimit import RateLimited, RateLimiter, StoreUnavailable
from batchlimit.errors import Unfit
from batchlimit.integrations.told import told_to_wait
from batchlimit.integrations.upstream import Library, Outgoing, Upstream, refused


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process whose local time is another one."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


NOW = 1_790_000_000.0
A_MINUTE_LATER = "Mon, 21 Sep 2026 14:14:20 GMT"
OUTGOING = Outgoing("api.example.com", "8443", "https", "POST", "/v1/chat")
LIBRARY = Library(RateLimiter, *[lambda *_: None] * 6)  # type: ignore[arg-type]  # nothing is sent


def made(key: Any = "{host}", **terms: Any) -> Upstream:
    return Upstream(RateLimiter.from_url("memory://", "1/s"), LIBRARY, key, **terms)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1.0),
        ({"retry-after": A_MINUTE_LATER}, 60.0),
        ({"retry-after": A_MINUTE_LATER, "date": "Mon, 21 Sep 2026 14:13:50 GMT"}, 30.0),
        ({"retry-after": "Mon, 21 Sep 2020 14:13:20 GMT"}, None),
        ({"retry-after": A_MINUTE_LATER, "date": A_MINUTE_LATER}, 0.0),
        ({"retry-after": A_MINUTE_LATER.replace("GMT", "-0000")}, 60.0),
        ({"retry-after": A_MINUTE_LATER.replace("GMT", "").strip()}, 60.0),
        ({"retry-after": "1_0"}, None),
        ({"retry-after": "\u0663"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "in a while"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Fri, 99 Foo 2026 99:99:99 GMT"}, None),
    ],
    ids=str,
)
@pytest.mark.usefixtures("far_from_utc")
def test_when_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    assert told_to_wait(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (200, {"retry-after": "30"}, 0.0),
        (500, {"retry-after": "30"}, 0.0),
        (429, {"retry-after": "30"}, 30.0),
        (503, {"retry-after": "30"}, 30.0),
        (429, {"retry-after": "86400"}, 600.0),
        (429, {}, 2.0),
        (503, {}, 0.0),
        (429, {"retry-after": "0"}, 0.0),
        (429, {"retry-after": "Mon, 21 Sep 2020 14:13:20 GMT"}, 2.0),
        (503, {"retry-after": "Mon, 21 Sep 2020 14:13:20 GMT"}, 0.0),
    ],
)
def test_which_responses_pause_and_for_how_long(status: int, headers: dict[str, str], seconds: float) -> None:
    pauses = [("a", seconds, f"{status} of upstream")] if seconds else []
    for observes in (False, True):
        assert made(unsaid=2.0, observe=observes).pauses("a", status, headers) == pauses


LITTLE = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "60s",
}
HELD_BACK = ("a", 10.0, "little is left at upstream")


@pytest.mark.parametrize(
    ("status", "headers", "pauses"),
    [
        (200, {}, []),
        (200, LITTLE, [HELD_BACK]),
        (429, LITTLE, [HELD_BACK, ("a", 2.0, "429 of upstream")]),
        (429, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "40"}, [("a", 40.0, "429 of upstream")]),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "40"}, [("a", 40.0, "403 of upstream")]),
        (403, {"retry-after": "60"}, [("a", 60.0, "403 of upstream")]),
        (403, {}, []),
        (529, {"retry-after": "60"}, [("a", 60.0, "529 of upstream")]),
        (529, {}, []),
    ],
)
def test_who_observes_upstream_pauses_before_its_429_and_by_its_other_refusals(
    status: int, headers: dict[str, str], pauses: list[tuple[str, float, str]]
) -> None:
    assert made(unsaid=2.0, observe=True).pauses("a", status, headers) == pauses


def test_the_body_of_a_refusal_says_when_to_come_back() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
    body = json.dumps({"error": {"details": [info]}}).encode()
    assert made(unsaid=2.0, observe=True).pauses("a", 429, {}, body) == [("a", 34.0, "429 of upstream")]


def test_each_kind_may_hold_back_a_key_of_its_own() -> None:
    upstream = made(observe={"requests": "model:rpm"})
    assert upstream.pauses("a", 200, LITTLE) == [("model:rpm", *HELD_BACK[1:])]


def test_a_key_names_parts_of_the_request() -> None:
    assert made().charge(None, OUTGOING) == ("api.example.com", 1)
    whole = made("{method} {scheme}://{host}:{port}{path}", cost=len)
    assert whole.charge("four", OUTGOING) == ("POST https://api.example.com:8443/v1/chat", 4)
    assert made(str.upper, cost=2).charge("by", OUTGOING) == ("BY", 2)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"key": "{user}"}, ValueError),
        ({"key": "{}"}, ValueError),
        ({"key": ""}, ValueError),
        ({"key": 7}, TypeError),
        ({"wait": -1}, ValueError),
        ({"wait": "long"}, TypeError),
        ({"wait": False}, TypeError),
        ({"unsaid": None}, TypeError),
        ({"cost": True}, TypeError),
        ({"cost": 1.5}, TypeError),
        ({"cost": -1}, ValueError),
        ({"longest": 0}, ValueError),
        ({"unsaid": math.inf}, ValueError),
        ({"observe": "requests"}, TypeError),
        ({"observe": {"requests": 1}}, TypeError),
        ({"observe": {"requests": ""}}, ValueError),
        ({"priority": 0}, ValueError),
        ({"priority": 101}, ValueError),
        ({"priority": True}, TypeError),
        ({"priority": "high"}, TypeError),
    ],
    ids=str,
)
def test_what_cannot_work_is_an_error(change: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        made(**change)


def test_a_request_that_is_not_sent_is_told_when_to_come_back() -> None:
    answer = refused(RateLimited("key", 1.25), "GET")
    assert (answer.status, answer.headers["retry-after"], answer.headers["retry-after-ms"]) == (429, "2", "1250")
    assert json.loads(answer.body)["status"] == 429
    never = refused(RateLimited("key", math.inf), "GET").headers
    assert "retry-after" not in never
    assert never["x-should-retry"] == "false"
    assert "7 tokens never fit a burst of 5" in json.loads(refused(Unfit("key", 7, 5), "GET").body)["detail"]
    away = refused(StoreUnavailable("gone"), "GET")
    assert (away.status, away.headers["retry-after"], json.loads(away.body)["status"]) == (503, "1", 503)

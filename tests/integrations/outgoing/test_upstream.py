"""What upstreams say of when to come back, with all the traps that were seen; and what a request in vain is told."""

import json
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import httpx2
import multidict
import pytest
from hypothesis import given
from hypothesis import strategies as st
from requests.structures import CaseInsensitiveDict

from batchlimit import RateLimited, RateLimiter, StoreUnavailable
from batchlimit.errors import Unfit
from batchlimit.integrations.pacing import Pacer, pause_of
from batchlimit.integrations.told import Allowance, observe, told_to_wait
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
def test_a_client_that_observes_pauses_before_a_429_and_by_other_refusals(
    status: int, headers: dict[str, str], pauses: list[tuple[str, float, str]]
) -> None:
    assert made(unsaid=2.0, observe=True).pauses("a", status, headers) == pauses


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


# How long calls are held back by what is left at upstream
@pytest.mark.parametrize(
    ("left", "seconds"),
    [
        (Allowance(0), 0.0),
        (Allowance(0, 100), 0.0),
        (Allowance(0, None, 30), 0.0),
        (Allowance(0, 0, 30), 0.0),
        (Allowance(0, 100, 0), 0.0),
        # a window of a minute, half of it over
        (Allowance(50, 100, 30, 60), 0.0),
        (Allowance(80, 100, 30, 60), 0.0),
        (Allowance(30, 100, 30, 60), 12.0),
        (Allowance(3, 100, 30, 60), 28.2),
        (Allowance(2, 100, 30, 60), 30.0),
        (Allowance(0, 100, 30, 60), 30.0),
        (Allowance(30, 100, 90, 60), 42.0),
        (Allowance(120, 100, 30, 60), 0.0),
        # at once or bit by bit, nobody knows
        (Allowance(20, 100, 30), 0.0),
        (Allowance(10, 100, 30), 3.0),
        (Allowance(2, 100, 30), 30.0),
        # bit by bit: 100/s up to 100, then 1/s up to 60
        (Allowance(20, 100, 0.8, refills=True), 0.0),
        (Allowance(10, 100, 0.9, refills=True), 0.3),
        (Allowance(0, 100, 1.0, refills=True), 0.4),
        (Allowance(5, 60, 55, refills=True), 0.0),
        (Allowance(4, 60, 56, refills=True), 6.0),
    ],
    ids=str,
)
def test_how_long_nothing_is_sent(left: Allowance, seconds: float) -> None:
    assert pause_of("requests", left) == pytest.approx(seconds)


def test_what_is_not_counted_in_calls_is_low_by_its_part_alone() -> None:
    tokens = Allowance(10_000, 60_000, 50, refills=True)
    assert pause_of("tokens", tokens) == pytest.approx(14)
    assert pause_of("requests", tokens) == 0.0


EARLY = {"requests": Allowance(30, 100, 30, 60)}
"""Twelve seconds too early."""


def test_a_pause_is_said_once_and_one_that_ends_later_again() -> None:
    pacer = Pacer(None, 600)
    assert pacer.pauses("a", EARLY, now=100.0) == {"a": pytest.approx(12)}
    assert pacer.pauses("a", EARLY, now=100.0) == {}
    assert pacer.pauses("b", EARLY, now=100.0) == {"b": pytest.approx(12)}
    assert pacer.pauses("a", {"requests": Allowance(20, 100, 29, 60)}, now=101.0) == {"a": pytest.approx(17)}
    assert pacer.pauses("a", {"requests": Allowance(19, 100, 11, 60)}, now=119.0) == {}


def test_no_pause_is_longer_than_what_is_believed() -> None:
    assert Pacer(None, 5).pauses("a", EARLY, now=0.0) == {"a": 5}
    assert Pacer(None, 600).pauses("a", {"tokens": Allowance(0, 100, 86400, refills=True)}, now=0.0) == {"a": 60}


def test_what_is_told_unchanged_after_its_pause_is_stale() -> None:
    pacer, stale = Pacer(None, 600), {"tokens": Allowance(0, 100, 86400, refills=True)}
    assert pacer.pauses("a", stale, now=100.0) == {"a": 60}
    assert pacer.pauses("a", stale, now=130.0) == {"a": 60}, "of a call that was under way"
    for later in (160.0, 161.0, 3600.0):
        assert pacer.pauses("a", stale, now=later) == {}
    assert pacer.pauses("a", {"tokens": Allowance(1, 100, 86400, refills=True)}, now=3601.0) == {"a": 60}


def test_what_changes_is_no_stale_news() -> None:
    pacer = Pacer(None, 600)
    for now, remaining in ((100.0, 30), (120.0, 29), (140.0, 28)):
        assert pacer.pauses("a", {"requests": Allowance(remaining, 100, 30, 60)}, now=now)


def test_what_is_too_short_to_tell_anybody_is_not_said() -> None:
    assert Pacer(None, 5).pauses("a", {"requests": Allowance(49.98, 100, 30, 60)}, now=0.0) == {}


def test_the_scarcest_kind_counts() -> None:
    both = EARLY | {"tokens": Allowance(0, 100, 40, 60), "other": Allowance(100, 100, 1, 60)}
    assert Pacer(None, 600).pauses("a", both, now=0.0) == {"a": 40}


def test_each_kind_may_have_a_key_and_others_are_left_alone() -> None:
    both: Any = EARLY | {"tokens": Allowance(0, 100, 40, 60)}
    assert Pacer({"tokens": "tpm"}, 600).pauses("a", both, now=0.0) == {"tpm": 40}


def test_of_an_end_in_whole_seconds_the_earliest_counts() -> None:
    """It is rounded up: of 9.1 and of 8.2 s upstream says 10 and 9."""
    pacer = Pacer(None, 600)
    assert pacer.pauses("a", {"requests": Allowance(100, 100, 10, 10)}, now=0.0) == {}
    assert pacer.pauses("a", {"requests": Allowance(90, 100, 9, 10)}, now=0.9) == {}
    assert pacer.pauses("a", {"requests": Allowance(80, 100, 9, 10)}, now=1.0) == {"a": pytest.approx(0.9)}
    assert pacer.pauses("b", {"requests": Allowance(80, 100, 9, 10)}, now=1.0) == {"b": pytest.approx(1.0)}


def test_what_is_known_of_many_keys_is_forgotten_once_it_is_over() -> None:
    pacer = Pacer(None, 600)
    for n in range(3000):
        pacer.pauses(f"key {n}", EARLY, now=float(n))
    assert max(len(pacer._ends), len(pacer._resets), len(pacer._reasons)) < 1100


RESETS: list[tuple[str, str, float, str]] = [
    ("an instant", f"{NOW + 60:.0f}", 60, ""),
    ("in the past", f"{NOW - 60:.0f}", 0, ""),
    ("an instant in milliseconds", f"{NOW * 1000 + 1500:.0f}", 1.5, ""),
    ("seconds", "60", 60, ""),
    ("a date", A_MINUTE_LATER, 60, ""),
    ("a date of JavaScript", "Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)", 0, ""),
    ("discord says both", f"{NOW:.0f}.250", 0.75, " | x-ratelimit-reset-after: 0.75"),
]
SPANS = {"6m0s": 360, "17ms": 0.017, "1h2m3.5s": 3723.5, "8.64s": 8.64, "1d": 86400, "500\u00b5s": 0.0005, "0s": 0}
SPANS |= {"2m59.56s": 179.56, **dict.fromkeys(["", "soon", "s", "1x", "1s!", "-1s"])}  # type: ignore[dict-item]
NO_NUMBERS = ("", "nan", "inf", "1_0", "\u0663", "unlimited", "-5", "1e9", "9" * 400)


def of_requests(limit: object, remaining: object, reset: object) -> dict[str, str]:
    told = {"limit": limit, "remaining": remaining, "reset": reset}
    return {f"x-ratelimit-{name}-requests": str(text) for name, text in told.items() if text is not None}


def of_anthropic(kind: str, limit: int, remaining: int, reset: str) -> dict[str, str]:
    told = {"limit": limit, "remaining": remaining, "reset": reset}
    return {f"anthropic-{kind}-{name}": str(text) for name, text in told.items()}


def fields(text: str) -> dict[str, str]:
    """Return the fields that are written as on the wire, " | " between them."""
    return dict(each.split(": ", 1) for each in text.split(" | "))


def refilled(remaining: float, limit: float | None, reset: float | None) -> Allowance:
    """What refills bit by bit."""
    return Allowance(remaining, limit, reset, refills=True)


LEFT: dict[str, tuple[dict[str, str], dict[str, Allowance]]] = {
    "nothing": ({}, {}),
    "openai": (
        of_requests(60, 59, "1s") | fields("x-ratelimit-remaining-tokens: 149984 | x-ratelimit-limit-tokens: 150000"),
        {"requests": refilled(59, 60, 1), "tokens": refilled(149984, 150000, None)},
    ),
    **{f"openai resets in {it}": (of_requests(60, 0, it), {"requests": refilled(0, 60, s)}) for it, s in SPANS.items()},
    "azure says -1": (of_requests(-1, -1, 0), {}),
    "azure says 0 of -1": (of_requests(-1, 0, 0), {"requests": refilled(0, None, 0)}),
    "azure says remaining alone": (of_requests(None, 119, None), {"requests": refilled(119, None, None)}),
    "azure writes one field another way": (
        fields("x-ratelimit-remaining-tokens: 9 | x-rate-limit-reset-tokens: 86400"),
        {"tokens": refilled(9, None, 86400)},
    ),
    "anthropic, a reset in the past": (
        of_anthropic("ratelimit-requests", 50, 49, "2026-09-21T14:14:20Z")
        | of_anthropic("ratelimit-input-tokens", 40000, 38000, "2026-09-21T16:13:23+02:00")
        | of_anthropic("priority-output-tokens", 8000, 0, "2026-09-21T14:13:19Z"),
        {
            "requests": refilled(49, 50, 60),
            "input-tokens": refilled(38000, 40000, 3),
            "priority-output-tokens": refilled(0, 8000, 0),
        },
    ),
    "by the clock of upstream": (
        of_anthropic("ratelimit-requests", 9, 1, "2026-09-21T14:14:20Z") | {"date": "Mon, 21 Sep 2026 14:14:10 GMT"},
        {"requests": refilled(1, 9, 10)},
    ),
    **{
        name: (
            fields(f"x-ratelimit-limit: 60 | x-ratelimit-remaining: 10 | x-ratelimit-reset: {text}{more}"),
            {"requests": Allowance(10, 60, reset)},
        )
        for name, text, reset, more in RESETS
    },
    **{
        f"github {it}": (
            fields(f"x-ratelimit-limit: 60 | x-ratelimit-remaining: 10 | x-ratelimit-reset: {NOW:.0f}")
            | fields(f"x-github-request-id: A:1 | x-ratelimit-resource: {it}"),
            {it: Allowance(10, 60, 0, window)},
        )
        for it, window in [("core", 3600), ("search", 60), ("graphql", 3600)]
    },
    "gitlab": (
        fields(f"RateLimit-Limit: 60 | RateLimit-Remaining: 10 | RateLimit-Reset: {NOW + 5:.0f}")
        | fields("RateLimit-Observed: 50 | RateLimit-Name: throttle_web"),
        {"requests": Allowance(10, 60, 5)},
    ),
    "linear names the kind first": (
        fields("X-RateLimit-Requests-Limit: 1500 | X-RateLimit-Requests-Remaining: 7"),
        {"requests": refilled(7, 1500, None)},
    ),
    "draft 3": (
        fields("RateLimit-Limit: 100, 10;w=1, 100;w=60 | RateLimit-Remaining: 50 | RateLimit-Reset: 30"),
        {"requests": Allowance(50, 100, 30, 60)},
    ),
    "draft 7": (
        fields("RateLimit: limit=100, remaining=50, reset=5 | RateLimit-Policy: 100;w=10"),
        {"requests": Allowance(50, 100, 5, 10)},
    ),
    "draft 11": (
        fields('RateLimit: "burst";r=50;t=5, daily;r=0 | RateLimit-Policy: "burst";q=100;w=60;pk=:YQ==:,"daily";q=9'),
        {"burst": Allowance(50, 100, 5, 60), "daily": Allowance(0, 9)},
    ),
    "a name with a comma": (fields('RateLimit: "a,b;r=3";r=1;t=2, "torn'), {"a,b;r=3": Allowance(1, None, 2)}),
    "shopify": (fields("X-Shopify-Shop-Api-Call-Limit: 32/40"), {"requests": refilled(8, 40, None)}),
    "shopify, beyond": (fields("X-Shopify-Shop-Api-Call-Limit: 41/40"), {"requests": refilled(0, 40, None)}),
    "stripe": (fields("retry-after: 3 | stripe-rate-limited-reason: global-rate"), {}),
    **{f"remaining {text!r}": (of_requests(60, text, "1s"), {}) for text in NO_NUMBERS},
    "other": (fields("x-ratelimit-used: 5 | x-ratelimit-bucket: a | x-ratelimit-scope: user"), {}),
}


@pytest.mark.parametrize(("headers", "allowances"), LEFT.values(), ids=LEFT)
@pytest.mark.usefixtures("far_from_utc")
def test_what_is_left(headers: dict[str, str], allowances: dict[str, Allowance]) -> None:
    assert observe(headers, NOW).allowances == allowances


def _retry_info(delay: object) -> Any:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    quota = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaValue": "50"}]}
    return {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [quota, info]}}


@pytest.mark.parametrize(
    ("status", "headers", "body", "after"),
    [
        (200, {"retry-after": "30"}, None, 30.0),
        (429, {"retry-after": "86400"}, None, 86400.0),
        (429, {"retry-after": "9" * 20}, None, 1e20),
        (429, {"retry-after": "Mon, 21 Sep 2020 14:13:20 GMT"}, None, None),
        (429, {"retry-after": "2026-09-21T14:14:20Z"}, None, 60.0),
        (429, {}, _retry_info("34.074824224s"), 34.074824224),
        (429, {}, [_retry_info("34s")], 34.0),
        (429, {"retry-after": "2"}, _retry_info("34s"), 2.0),
        (429, {}, _retry_info("-1s"), None),
        (429, {}, _retry_info(34), None),
        (429, {}, {"error": {"code": "insufficient_quota", "message": "check your plan"}}, None),
        (429, of_requests(60, 0, "6m0s"), None, None),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "40"}, None, None),
        (429, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "40"}, None, 40.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 40:.0f}"}, None, 40.0),
        (403, {"x-ratelimit-remaining": "7", "x-ratelimit-reset": f"{NOW + 40:.0f}"}, None, None),
        (403, {}, {"message": "You have exceeded a secondary rate limit. Please wait."}, 60.0),
        (403, {"retry-after": "7"}, {"message": "You have exceeded a secondary rate limit."}, 7.0),
        (403, {}, {"message": "Must have admin rights to Repository."}, None),
    ],
    ids=str,
)
@pytest.mark.usefixtures("far_from_utc")
def test_when_to_come_back_by_status_and_body(status: int, headers: Any, body: Any, after: float | None) -> None:
    sent = b"" if body is None else json.dumps(body).encode()
    assert observe(headers, NOW, status=status, body=sent).after == after


def test_points_of_a_query() -> None:
    cost = {"throttleStatus": {"maximumAvailable": 2000.0, "currentlyAvailable": 500, "restoreRate": 100.0}}
    body = json.dumps({"data": {}, "extensions": {"cost": cost}}).encode()
    assert observe({}, NOW, body=body).allowances == {"points": refilled(500, 2000, 15)}


NAMES = ("X-RateLimit-Limit-Requests", "X-RateLimit-Remaining-Requests")


@pytest.mark.parametrize(
    "headers",
    [
        httpx.Headers(dict.fromkeys(NAMES, "9")),
        httpx2.Headers(dict.fromkeys(NAMES, "9")),
        CaseInsensitiveDict(dict.fromkeys(NAMES, "9")),
        multidict.CIMultiDict(dict.fromkeys(NAMES, "9")),
    ],
    ids=lambda headers: type(headers).__module__,
)
def test_the_headers_of_every_library_are_read(headers: Mapping[str, str]) -> None:
    assert observe(headers, NOW).allowances == {"requests": refilled(9, 9, None)}


def test_fields_of_one_name_are_one_list() -> None:
    headers = multidict.CIMultiDict([("RateLimit", '"a";r=1'), ("ratelimit", '"b";r=2')])
    assert observe(headers, NOW).allowances == {"a": Allowance(1), "b": Allowance(2)}


FIELDS = st.sampled_from(
    ["ratelimit", "ratelimit-policy", "ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "date",
     "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests", "retry-after",
     "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset", "x-shopify-shop-api-call-limit"]
)  # fmt: skip
TEXTS = st.text(max_size=40) | st.text('0123456789-:.,;="rtqwsmhTZ GM', max_size=40)
BODIES = st.recursive(
    st.none() | st.integers() | st.floats() | st.sampled_from(["1s", "x"]),
    lambda each: (
        st.lists(each, max_size=2)
        | st.dictionaries(
            st.sampled_from(["error", "details", "retryDelay", "extensions", "cost", "throttleStatus", "message",
                             "restoreRate", "maximumAvailable", "currentlyAvailable"]), each, max_size=3
        )
    ),
    max_leaves=6,
)  # fmt: skip


@given(st.dictionaries(FIELDS, TEXTS), BODIES.map(lambda said: json.dumps(said).encode()) | st.binary(max_size=20))
def test_whatever_comes_is_read_or_left_out(headers: dict[str, str], body: bytes) -> None:
    after, allowances = observe(headers, NOW, status=429, body=body)
    numbers = [number for each in allowances.values() for number in each[:4] if number is not None]
    assert all(0 <= number < math.inf for number in [*numbers, after or 0.0])


@pytest.mark.parametrize(
    "text", ['"' * 3000, "a" * 3000 + '"', ";a=" * 1000, '"a' + "\\" * 3000, " " * 3000 + '"'], ids=range(5)
)
def test_a_field_that_is_hard_to_read_ends_no_process(text: str) -> None:
    """By an expression that tries every way to read it, it would take years."""
    fields = {"ratelimit": text, "ratelimit-policy": text, "ratelimit-limit": text, "ratelimit-remaining": "1"}
    assert observe(fields, NOW).allowances == {"requests": Allowance(1)}

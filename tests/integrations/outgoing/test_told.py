"""What upstreams say of their limits, with all the traps that were seen."""

import json
import math
from collections.abc import Mapping
from typing import Any

import httpx
import httpx2
import multidict
import pytest
from hypothesis import given
from hypothesis import strategies as st
from requests.structures import CaseInsensitiveDict

from batchlimit.integrations.told import Allowance, observe
from tests.integrations.outgoing.test_upstream import A_MINUTE_LATER, NOW, far_from_utc  # noqa: F401  a fixture

DATE = "Mon, 21 Sep 2026 14:13:20 GMT"
"""It is NOW then."""
A_MINUTE_ON = {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "10"}


def requests(limit: object, remaining: object, reset: object) -> dict[str, str]:
    told = {"limit": limit, "remaining": remaining, "reset": reset}
    return {f"x-ratelimit-{name}-requests": str(text) for name, text in told.items() if text is not None}


def left(remaining: float, limit: float | None, reset: float | None) -> Allowance:
    """What refills bit by bit."""
    return Allowance(remaining, limit, reset, refills=True)


@pytest.mark.parametrize(
    ("headers", "allowances"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param(
            requests(60, 59, "1s") | {"x-ratelimit-remaining-tokens": "149984", "x-ratelimit-limit-tokens": "150000"},
            {"requests": left(59, 60, 1), "tokens": left(149984, 150000, None)},
            id="openai",
        ),
        *[
            pytest.param(requests(60, 0, text), {"requests": left(0, 60, seconds)}, id=f"openai resets in {text}")
            for text, seconds in [
                ("6m0s", 360),
                ("17ms", 0.017),
                ("1h2m3.5s", 3723.5),
                ("8.64s", 8.64),
                ("1d", 86400),
                ("500µs", 0.0005),
                ("0s", 0),
                ("2m59.56s", 179.56),
                ("", None),
                ("soon", None),
                ("s", None),
                ("1x", None),
                ("1s!", None),
                ("-1s", None),
            ]
        ],
        pytest.param(requests(-1, -1, 0), {}, id="azure says -1"),
        pytest.param(requests(-1, 0, 0), {"requests": left(0, None, 0)}, id="azure says 0 of -1"),
        pytest.param(requests(None, 119, None), {"requests": left(119, None, None)}, id="azure says remaining alone"),
        pytest.param(
            {"x-ratelimit-remaining-tokens": "9", "x-rate-limit-reset-tokens": "86400"},
            {"tokens": left(9, None, 86400)},
            id="azure writes one field another way",
        ),
        pytest.param(
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "49",
                "anthropic-ratelimit-requests-reset": "2026-09-21T14:14:20Z",
                "anthropic-ratelimit-input-tokens-limit": "40000",
                "anthropic-ratelimit-input-tokens-remaining": "38000",
                "anthropic-ratelimit-input-tokens-reset": "2026-09-21T16:13:23+02:00",
                "anthropic-priority-output-tokens-limit": "8000",
                "anthropic-priority-output-tokens-remaining": "0",
                "anthropic-priority-output-tokens-reset": "2026-09-21T14:13:19Z",
            },
            {
                "requests": left(49, 50, 60),
                "input-tokens": left(38000, 40000, 3),
                "priority-output-tokens": left(0, 8000, 0),
            },
            id="anthropic, a reset in the past",
        ),
        pytest.param(
            {
                "date": "Mon, 21 Sep 2026 14:14:10 GMT",
                "anthropic-ratelimit-requests-remaining": "1",
                "anthropic-ratelimit-requests-reset": "2026-09-21T14:14:20Z",
            },
            {"requests": left(1, None, 10)},
            id="by the clock of upstream",
        ),
        pytest.param(
            A_MINUTE_ON | {"x-ratelimit-reset": f"{NOW + 60:.0f}"}, {"requests": Allowance(10, 60, 60)}, id="an instant"
        ),
        pytest.param(
            A_MINUTE_ON | {"x-ratelimit-reset": f"{NOW - 60:.0f}"}, {"requests": Allowance(10, 60, 0)}, id="in the past"
        ),
        pytest.param(
            A_MINUTE_ON | {"x-ratelimit-reset": f"{NOW * 1000 + 1500:.0f}"},
            {"requests": Allowance(10, 60, 1.5)},
            id="an instant in milliseconds",
        ),
        pytest.param(A_MINUTE_ON | {"x-ratelimit-reset": "60"}, {"requests": Allowance(10, 60, 60)}, id="seconds"),
        pytest.param(
            A_MINUTE_ON | {"x-ratelimit-reset": A_MINUTE_LATER}, {"requests": Allowance(10, 60, 60)}, id="a date"
        ),
        pytest.param(
            A_MINUTE_ON | {"x-ratelimit-reset": "Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)"},
            {"requests": Allowance(10, 60, 0)},
            id="a date as JavaScript writes it",
        ),
        pytest.param(
            A_MINUTE_ON | {"x-ratelimit-reset": f"{NOW:.0f}.250", "x-ratelimit-reset-after": "0.75"},
            {"requests": Allowance(10, 60, 0.75)},
            id="discord says both",
        ),
        *[
            pytest.param(
                A_MINUTE_ON
                | {"x-github-request-id": "A:1", "x-ratelimit-resource": resource, "x-ratelimit-reset": f"{NOW:.0f}"},
                {resource: Allowance(10, 60, 0, window)},
                id=f"github {resource}",
            )
            for resource, window in [("core", 3600), ("search", 60), ("graphql", 3600)]
        ],
        pytest.param(
            {
                "RateLimit-Limit": "60",
                "RateLimit-Remaining": "10",
                "RateLimit-Reset": f"{NOW + 5:.0f}",
                "RateLimit-Observed": "50",
                "RateLimit-Name": "throttle_web",
            },
            {"requests": Allowance(10, 60, 5)},
            id="gitlab",
        ),
        pytest.param(
            {"X-RateLimit-Requests-Limit": "1500", "X-RateLimit-Requests-Remaining": "7"},
            {"requests": left(7, 1500, None)},
            id="linear names the kind first",
        ),
        pytest.param(
            {"RateLimit-Limit": "100, 10;w=1, 100;w=60", "RateLimit-Remaining": "50", "RateLimit-Reset": "30"},
            {"requests": Allowance(50, 100, 30, 60)},
            id="draft 3",
        ),
        pytest.param(
            {"RateLimit": "limit=100, remaining=50, reset=5", "RateLimit-Policy": "100;w=10"},
            {"requests": Allowance(50, 100, 5, 10)},
            id="draft 7",
        ),
        pytest.param(
            {
                "RateLimit": '"burst";r=50;t=5, daily;r=0',
                "RateLimit-Policy": '"burst";q=100;w=60;pk=:YQ==:,"daily";q=9',
            },
            {"burst": Allowance(50, 100, 5, 60), "daily": Allowance(0, 9)},
            id="draft 11",
        ),
        pytest.param(
            {"RateLimit": '"a,b;r=3";r=1;t=2, "torn'}, {"a,b;r=3": Allowance(1, None, 2)}, id="a name with a comma"
        ),
        pytest.param({"X-Shopify-Shop-Api-Call-Limit": "32/40"}, {"requests": left(8, 40, None)}, id="shopify"),
        pytest.param({"X-Shopify-Shop-Api-Call-Limit": "41/40"}, {"requests": left(0, 40, None)}, id="shopify, beyond"),
        pytest.param({"retry-after": "3", "stripe-rate-limited-reason": "global-rate"}, {}, id="stripe"),
        *[
            pytest.param(requests(60, text, "1s"), {}, id=f"remaining {text!r}")
            for text in ("", "nan", "inf", "1_0", "\u0663", "unlimited", "-5", "1e9", "9" * 400)
        ],
        pytest.param({"x-ratelimit-used": "5", "x-ratelimit-bucket": "a", "x-ratelimit-scope": "user"}, {}, id="other"),
    ],
)
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
        (429, requests(60, 0, "6m0s"), None, None),
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
def test_when_to_come_back(status: int, headers: dict[str, str], body: Any, after: float | None) -> None:
    sent = b"" if body is None else json.dumps(body).encode()
    assert observe(headers, NOW, status=status, body=sent).after == after


def test_points_of_a_query() -> None:
    cost = {"throttleStatus": {"maximumAvailable": 2000.0, "currentlyAvailable": 500, "restoreRate": 100.0}}
    body = json.dumps({"data": {}, "extensions": {"cost": cost}}).encode()
    assert observe({}, NOW, body=body).allowances == {"points": left(500, 2000, 15)}


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
    assert observe(headers, NOW).allowances == {"requests": left(9, 9, None)}


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

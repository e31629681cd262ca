"""What a response says of a limit is what the draft says, read by a parser that knows nothing of how it was written."""

import json
import math
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit import Quota, RateLimiter
from batchlimit.integrations import headers
from batchlimit.integrations.headers import Fields, Form, Told
from batchlimit.integrations.wsgi import RateLimitMiddleware
from batchlimit.rules import Rule, RulesError
from batchlimit.testing import frozen_limits
from tests.depth import depth
from tests.integrations.structured import Limit, read_limits
from tests.testing.test_exact import Plain


def applied(quota: str, remaining: int, *, name: str = "api", key: str = "user:ann") -> Told:
    return name, Quota.parse(quota), key, remaining, None


def told(*rules: Told, secret: bytes = b"s") -> dict[str, Limit]:
    return read_limits(dict(Fields(secret=secret).of(rules)))


@pytest.mark.parametrize(
    ("quota", "remaining", "q", "w", "r", "t"),
    [
        ("100/s burst 200", 200, 200, 2, 200, 2),  # as long as it lasts at the sustained rate
        ("100/s burst 200", 150, 200, 2, 150, 2),
        ("100/s burst 200", 0, 200, 2, 0, 1),  # the next token comes within a second
        ("5/minute", 4, 5, 60, 4, 48),
        ("5/minute", 0, 5, 60, 0, 12),
        ("1/day", 0, 1, 86400, 0, 86400),
        ("1000/s burst 10", 10, 10, 1, 10, 1),  # a window is no shorter than a second
        ("0/s", 0, 0, None, 0, None),  # and none where no token ever comes
    ],
)
def test_a_token_bucket_is_told_as_burst_and_time(quota: str, remaining: int, q: int, w: Any, r: int, t: Any) -> None:
    limit = told(applied(quota, remaining))["api"]
    assert limit[:4] == (q, w, r, t)


def test_every_bandwidth_is_a_policy_and_the_slowest_has_the_name() -> None:
    limits = told(applied("100/s; 1000/h", 90))
    assert limits["api"][:4] == (1000, 3600, 90, 324)
    assert limits["api#2"][:4] == (100, 1, None, None)


def test_no_rule_has_the_name_of_another_ones_bandwidth() -> None:
    (bandwidth,) = told(applied("100/s; 1000/h", 90)).keys() - {"api"}
    with pytest.raises(RulesError, match="a name has"):
        Rule(bandwidth, "1/s", key="all")


@pytest.mark.parametrize("rate", [1e-9, 1e-3, 1.0, 1e9])
@pytest.mark.parametrize("left", [0, 1, 3, 10**18])
def test_no_integer_is_too_large_for_a_field(rate: float, left: int) -> None:
    limit = told(("limit of 100 %d, é", Quota(rate, 3), "user:ann", left, None))["limit of 100 %d, %C3%A9"]
    assert (limit.q, limit.r) == (3, min(left, 3))
    assert limit.t is not None
    assert 1 <= limit.t < 10**15


def test_what_a_quota_says_is_written_once_though_each_key_has_an_equal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(headers.Policy):
        made = 0

        def __init__(self, name: str, quota: Quota) -> None:
            Counted.made += 1
            super().__init__(name, quota)

    monkeypatch.setattr(headers, "Policy", Counted)
    fields = Fields()
    for user in "ann", "bob":
        fields.of([("login", Quota.parse("5/minute"), user, 4, None)])
    assert Counted.made == 1


@given(st.text(min_size=1), st.text(min_size=1), st.integers(0, 2**50), st.integers(1, 2**50))
def test_whatever_a_rule_is_called_a_client_reads_the_fields(name: str, key: str, remaining: int, burst: int) -> None:
    limits = told(applied(f"3/s burst {burst}", remaining, name=name, key=key))
    assert len(limits) == 1
    assert next(iter(limits.values())).q == min(burst, 10**15 - 1)


def test_a_partition_key_tells_keys_apart_and_nobody_can_guess_the_key_from_it() -> None:
    def pk(key: str, secret: bytes) -> bytes | None:
        return told(applied("5/s", 4, key=key), secret=secret)["api"].pk

    assert len({pk("ann", b"s"), pk("bob", b"s"), pk("ann", b"t")}) == 3
    assert pk("ann", b"s") == pk("ann", b"s")
    assert len(pk("ann", b"s") or b"") == 9
    ann = Fields().of([applied("5/s", 4)])
    long = b"shop-production-rate-limit-headers"
    assert pk("ann", long + b"a") != pk("ann", long + b"b"), "all of a secret counts"
    assert ann != Fields().of([applied("5/s", 4)])  # without a secret each process has its own


def test_legacy_fields_are_of_the_rule_with_the_least_room() -> None:
    fields = Fields("legacy", wall=lambda: 1000.5)
    rules = [applied("10/s", 9, name="a", key="a"), applied("100/s", 20, name="b", key="b")]
    assert fields.of(rules) == [
        (b"x-ratelimit-limit", b"100"),
        (b"x-ratelimit-remaining", b"20"),
        (b"x-ratelimit-reset", b"1002"),
    ]
    assert len(fields.of([applied("0/s", 0)])) == 2
    (*_, (_, reset)) = fields.of([(*applied("100/hour; 5/minute", 4)[:4], 1)])
    assert reset == b"1013"  # when the minute is full again: not the hour, of which 4 would be left


@pytest.mark.parametrize(("form", "names"), [("both", 5), ("draft-11", 2), ("legacy", 3), ("off", 0)])
def test_a_form_is_chosen(form: Form, names: int) -> None:
    assert len(Fields(form).of([applied("10/s", 9)])) == names
    assert Fields(form).of([]) == []
    assert Fields(form).retry_after(1.0) == [(b"retry-after", b"1")]


@given(st.floats(0, 1e9), st.floats(0, 1))
def test_retry_after_is_whole_seconds_no_sooner_and_at_most_a_tenth_later(seconds: float, chance: float) -> None:
    ((name, value),) = Fields(chance=lambda: chance).retry_after(seconds)
    assert name == b"retry-after"
    least = max(1, math.ceil(seconds))
    assert least <= int(value) <= least + least // 10


def test_retry_after_is_spread() -> None:
    values = {Fields(chance=lambda chance=chance: chance).retry_after(100.0)[0][1] for chance in (0.0, 0.5, 1.0)}  # type: ignore[misc]
    assert values == {b"100", b"105", b"110"}


def test_a_time_that_nobody_waits_for_is_no_longer_than_a_field_can_tell() -> None:
    told = dict(Fields("both", wall=lambda: 1e18).refused([applied("5/minute", 0)], 1e31))
    assert read_limits(told)["api"].t == 10**15 - 1
    assert len(told[b"retry-after"]) <= 16
    assert told[b"x-ratelimit-reset"] == b"999999999999999"


@pytest.mark.parametrize(
    ("made", "status", "kind"),
    [
        (headers.quota_exceeded(["login"]), 429, "quota-exceeded"),
        (headers.reduced_capacity(["login"]), 503, "temporary-reduced-capacity"),
    ],
)
def test_a_problem_is_of_a_type_of_the_draft_and_names_policies(made: headers.Problem, status: int, kind: str) -> None:
    body = json.loads(made.body())
    assert body.pop("title")
    assert body == {
        "type": f"https://iana.org/assignments/http-problem-types#{kind}",
        "status": status,
        "violated-policies": ["login"],
    }


# RateLimit names the bandwidth that binds, by exact arithmetic
QUOTAS = (
    "1/s", "5/minute", "10/hour", "50/s", "3/s burst 1", "5/minute; 100/day", "100/day; 5/minute",
    "10/s burst 20; 100/hour burst 15", "2/s; 20/minute; 30/hour", "7/minute burst 2; 20/hour", "3/s; 3/minute",
)  # fmt: skip

MOVED = Fraction(2, 1_000_000)
"""Seconds by which frozen time moves more."""


class Client:
    """Sends requests to an application whose only rule has this quota, for everybody."""

    def __init__(self, quota: str) -> None:
        limiter = RateLimiter.from_url("redis://192.0.2.1:1/0", quota)
        self._app = RateLimitMiddleware(self._hello, limiter, [Rule("api", quota, key="everybody")])

    def ask(self) -> tuple[bool, Limit, int]:
        """Return whether a request was admitted, what RateLimit says, and Retry-After (0: there is none)."""
        said: dict[bytes, bytes] = {}
        status = ""

        def start(told: str, headers: list[tuple[str, str]], _error: object = None) -> Callable[[bytes], object]:
            nonlocal status
            status = told
            said.update({name.lower().encode(): value.encode() for name, value in headers})
            return said.get

        environ: dict[str, object] = {}
        setup_testing_defaults(environ)
        b"".join(self._app(environ, start))
        (limit,) = [each for each in read_limits(said).values() if each.r is not None]
        return status == "200 OK", limit, int(said.get(b"retry-after", b"0"))

    @staticmethod
    def _hello(_environ: object, start_response: object) -> list[bytes]:
        start_response("200 OK", [])  # type: ignore[operator]
        return [b"hello"]


def windows(plain: Plain) -> dict[int, float]:
    """Return by number how long no further token comes; of those that have one, how many there are, below 0."""
    waits = [max(0.0, float((1 - level) / rate)) for level, rate in zip(plain.levels, plain.rates, strict=True)]
    if any(waits):
        return dict(enumerate(waits))
    return {number: -float(level) for number, level in enumerate(plain.levels)}


@pytest.mark.parametrize("quota", QUOTAS)
def test_ratelimit_names_the_bandwidth_that_binds_and_retry_after_is_no_earlier_and_kept(quota: str) -> None:
    chance, plain = Random(quota), Plain(quota)
    with frozen_limits() as limits:
        client = Client(quota)
        for _ in range(depth(30, 1000)):
            admitted, limit, retry_after = client.ask()
            assert admitted == plain.take(1)
            most = windows(plain)
            binding = [number for number, each in most.items() if each == max(most.values())]
            q, r, t = limit.q, limit.r, limit.t
            assert (q, limit.w) in [(plain.bursts[n], plain.windows[n]) for n in binding]
            assert r == plain.whole
            true = max(most.values())
            if not admitted:
                least = max(1, math.ceil(true - 1e-3))
                assert least <= (t or 0) <= retry_after <= least + least // 10 + 1
            elif r == 0:
                assert t is not None
                assert t >= math.ceil(true - 1e-3)
            pause = chance.choice([0, 0, 0, 1]) if admitted else retry_after
            if pause:
                limits.advance(pause)
                plain.advance(pause + MOVED)

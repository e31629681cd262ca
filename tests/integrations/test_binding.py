"""RateLimit names the bandwidth that binds, by exact arithmetic and a parser that shares no code with the writer."""

import math
from collections.abc import Callable
from fractions import Fraction
from random import Random
from wsgiref.util import setup_testing_defaults

import pytest

from batchlimit import RateLimiter
from batchlimit.integrations.wsgi import RateLimitMiddleware
from batchlimit.rules import Rule
from batchlimit.testing import frozen_limits
from tests.depth import depth
from tests.integrations.structured import Limit, read_limits
from tests.testing.test_exact import Plain

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


def test_a_quota_by_the_minute_and_by_the_day_says_when_the_minute_has_the_next_token() -> None:
    with frozen_limits():
        client = Client("5/minute; 100/day")
        answers = [client.ask() for _ in range(6)]
    assert [(limit.q, limit.r) for _, limit, _ in answers[-2:]] == [(5, 0), (5, 0)]
    assert [limit.t for _, limit, _ in answers[-2:]] == [12, 12]
    assert answers[-1][2] in (12, 13)  # it is spread by a tenth

"""Logins that do not count are refused by nobody, whichever worker they come to, and whether the store stalls."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle

import pytest

from batchlimit import RateLimiter
from batchlimit.integrations.enforcement import Enforcer, Response
from batchlimit.rules import Request, Rule, Rules
from tests.nodes import await_fact
from tests.relay import Relay
from tests.servers import Server

RULES = Rules([Rule("login", "5/hour", key="login", match="POST /login", charge=[401])])
WORKERS = 4


def is_queued(call: "Future[int]") -> bool:
    return not (call.running() or call.done())


@pytest.fixture
def relay(valkey: Server) -> Iterator[Relay]:
    with Relay(valkey.url, 0.002) as relay:
        yield relay


@pytest.fixture
def logins(relay: Relay, prefix: str) -> Iterator[Callable[[int], int]]:
    """What logs in rightly, at one worker after the other, and returns the status of a refusal or 200."""
    with ExitStack() as stack:
        limiters = [
            stack.enter_context(RateLimiter.from_url(relay.url, RULES.quotas, prefix=prefix)) for _ in range(WORKERS)
        ]
        workers = cycle([Enforcer(each, RULES) for each in limiters])

        def log_in(_number: int) -> int:
            worker = next(workers)
            outcome = worker.admit(Request("POST", "/login", {}))
            worker.settle(outcome, Response(200))
            return 200 if outcome.refusal is None else outcome.refusal.status

        yield log_in


def test_right_logins_one_after_the_other_are_all_admitted(logins: Callable[[int], int]) -> None:
    """They go on for longer than a grant lasts."""
    assert Counter(map(logins, range(200))) == {200: 200}


def test_a_store_that_stalls_refuses_no_right_login(logins: Callable[[int], int], relay: Relay) -> None:
    logins(0)
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            relay.drop()
            begun = [pool.submit(logins, number) for number in range(3)]
            await_fact(lambda begun=begun: not any(map(is_queued, begun)), "they have begun")  # type: ignore[misc]
            relay.restore()
            assert [each.result() for each in begun] == [200] * 3
    assert Counter(map(logins, range(60))) == {200: 60}

"""Who is short of tokens that a response under way may give back hears its outcome first, and then a refusal if any."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.base.steps import run
from batchlimit.integrations.enforcement import AsyncEnforcer, Enforcer, Outcome, Response, charging
from batchlimit.integrations.enforcement.charging import Underway
from batchlimit.integrations.front import AsyncFront
from batchlimit.rules import Request, Rule, Rules
from tests.awaiting import awaited
from tests.nodes import await_fact
from tests.relay import Relay
from tests.servers import Server

LOGIN = Request("POST", "/login", {})
RIGHT, WRONG = Response(200), Response(401)


def rules(quota: str = "1/hour") -> Rules:
    return Rules([Rule("login", quota, key="login", match="POST /login", charge=[401])])


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's patience ends because the machine is busy."""
    monkeypatch.setattr(charging, "_HOLD", 60.0)


def test_a_request_refused_while_one_of_several_responses_ended_is_decided_once_more() -> None:
    """It waited for the next end, and was refused though the first one had given a token back."""
    (login,), open_ones = list(rules()), Underway(Event)
    charged = (login, "login", 1)
    open_ones.begin([charged] * 2)
    were = open_ones.among([charged])
    open_ones.end("login")
    assert run(open_ones.outcome("login", were, 9, math.inf))


@pytest.mark.parametrize(
    ("is_open", "were", "seconds", "decides_again"),
    [
        (False, {}, 1.0, False),
        (False, {"login": 0}, 1.0, True),  # it has just ended
        (False, {"login": 0}, 0.0, False),
        (True, {}, 0.0, False),
    ],
)
def test_a_request_without_patience_or_a_login_under_way_does_not_wait(
    is_open: bool, were: dict[str, int], seconds: float, decides_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (login,), open_ones = list(rules()), Underway(Event)
    monkeypatch.setattr(charging, "time", SimpleNamespace(monotonic=lambda: 100.0))
    open_ones.begin([(login, "login", 1)] * is_open)
    assert run(open_ones.outcome("login", were, 9, 100.0 + seconds)) == decides_again


def test_a_request_that_memory_admits_is_under_way_until_its_response_has_ended() -> None:
    login = rules("1000000/s")
    enforcer = Enforcer(RateLimiter.from_url("memory://", login.quotas), login)
    outcomes = [enforcer.admit(LOGIN)]
    while outcomes[-1].decided is not None:  # as long as the store is asked
        assert len(outcomes) < 10_000, "memory admits nobody"
        outcomes.append(enforcer.admit(LOGIN))
    *others, last = outcomes
    open_ones, charged = enforcer._charging.underway, last.charges
    for each in others:
        enforcer.settle(each, RIGHT)
    assert [*open_ones.among(charged)] == ["login"]
    enforcer.settle(last, RIGHT)
    assert open_ones.among(charged) == {}


async def _enforcer(quota: str = "1/hour") -> AsyncEnforcer:
    return AsyncEnforcer(AsyncRateLimiter.from_url("memory://", rules(quota).quotas), rules(quota))


class Site:
    """Requests of threads, or of tasks that threads wait for."""

    def __init__(self, asynchronous: bool, quota: str) -> None:
        self._do: Callable[..., Any] = awaited if asynchronous else lambda call, *args: call(*args)
        self.enforcer: Any = (
            awaited(_enforcer, quota)
            if asynchronous
            else Enforcer(RateLimiter.from_url("memory://", rules(quota).quotas), rules(quota))
        )
        self._pool = ThreadPoolExecutor(8)

    def begin(self) -> "Future[Outcome]":
        return self._pool.submit(self._do, self.enforcer.admit, LOGIN)

    def end(self, request: "Future[Outcome]", response: Response) -> None:
        self._do(self.enforcer.settle, request.result(), response)

    @property
    def waiting(self) -> int:
        return len(self.enforcer._charging.underway._waiting.get("login", ()))


@pytest.fixture(params=[False, True], ids=["threads", "tasks"])
def open_site(request: pytest.FixtureRequest) -> Callable[..., Site]:
    """What makes a site of this API."""
    return lambda quota="1/hour": Site(request.param, quota)


@pytest.mark.parametrize(("login", "statuses"), [(RIGHT, [None]), (WRONG, [429, 429])], ids=["right", "wrong"])
def test_a_request_during_a_login_hears_its_outcome_first(open_site: Any, login: Response, statuses: Any) -> None:
    site = open_site()
    first = site.begin()
    first.result()
    second = site.begin()
    await_fact(lambda: site.waiting == 1, "it waits")
    site.end(first, login)
    for status in statuses:
        refusal = second.result().refusal
        assert (refusal and refusal.status) == status
        second = site.begin()


def test_no_more_wait_at_once_than_the_burst_has_tokens(open_site: Callable[..., Site]) -> None:
    site = open_site("2/hour")
    admitted = [site.begin() for _ in range(2)]
    assert all(each.result().refusal is None for each in admitted)
    held = [site.begin() for _ in range(2)]
    await_fact(lambda: site.waiting == 2, "both wait")
    assert site.begin().result().refusal is not None
    site.end(admitted[0], RIGHT)
    await_fact(lambda: site.waiting == 1 and any(each.done() for each in held), "one has its token")
    site.end(admitted[1], RIGHT)
    assert [each.result().refusal for each in held] == [None, None]


async def test_a_cancelled_request_waits_no_more() -> None:
    enforcer = await _enforcer()
    await enforcer.admit(LOGIN)
    second = asyncio.create_task(enforcer.admit(LOGIN))
    waiting = enforcer._charging.underway._waiting
    while not waiting.get("login"):  # noqa: ASYNC110  there is no event for it
        await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert not waiting.get("login")


# Logins that do not count are refused by nobody, whichever worker they come to, and whether the store stalls
LOGINS = Rules([Rule("login", "5/hour", key="login", match="POST /login", charge=[401])])
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
            stack.enter_context(RateLimiter.from_url(relay.url, LOGINS.quotas, prefix=prefix)) for _ in range(WORKERS)
        ]
        workers = cycle([Enforcer(each, LOGINS) for each in limiters])

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


# What becomes of a charge that has to be awaited
class Charging:
    """A front whose rule is charged by what is awaited, and whose limiter notes that it is closed."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.charges, self.may_charge = asyncio.Event(), asyncio.Event()
        self.rules = Rules([Rule("all", "9/hour", key="all", charge=self._charge)])
        self.front = AsyncFront(self.limiter, self.rules)

    async def admitted(self) -> Outcome:
        return await self.front.admit("GET", "/", None, [])

    def limiter(self) -> AsyncRateLimiter:
        notes = self.notes

        class Noting(AsyncRateLimiter):
            async def close(self) -> None:
                notes.append("closed")
                await super().close()

        return Noting.from_url("memory://", self.rules.quotas)

    async def _charge(self, response: Response) -> bool:
        self.charges.set()
        await self.may_charge.wait()
        self.notes.append("charged")
        return True


def test_a_front_is_closed_after_what_it_settles() -> None:
    async def test() -> list[str]:
        charging = Charging()
        charging.front.settle(await charging.admitted(), Response(200))
        asyncio.get_running_loop().call_soon(charging.may_charge.set)
        await charging.front.close()
        return charging.notes

    assert asyncio.run(test()) == ["charged", "closed"]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # indeed
def test_a_request_that_ends_after_its_loop_is_no_error() -> None:
    charging = Charging()
    charging.front.settle(asyncio.run(charging.admitted()), Response(200))
    assert charging.notes == []

"""Who is short of tokens that a response under way may give back hears its outcome first, and then a refusal if any."""

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.base.steps import run
from batchlimit.integrations.enforcement import AsyncEnforcer, Enforcer, Outcome, Response, charging
from batchlimit.integrations.enforcement.charging import Underway
from batchlimit.rules import Request, Rule, Rules
from tests.awaiting import awaited
from tests.nodes import await_fact

LOGIN = Request("POST", "/login", {})
RIGHT, WRONG = Response(200), Response(401)


def rules(quota: str = "1/hour") -> Rules:
    return Rules([Rule("login", quota, key="login", match="POST /login", charge=[401])])


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's patience ends because the machine is busy."""
    monkeypatch.setattr(charging, "_HOLD", 60.0)


def test_who_was_refused_while_one_of_several_responses_ended_decides_once_more() -> None:
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
def test_whose_patience_has_ended_or_for_whom_nothing_is_under_way_does_not_wait(
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
def test_who_comes_during_a_login_hears_its_outcome_first(
    open_site: Callable[..., Site], login: Response, statuses: list[int | None]
) -> None:
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


def test_a_slow_response_is_waited_for_a_moment_only(
    open_site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charging, "_HOLD", 0.02)
    site = open_site()
    site.begin().result()
    assert site.begin().result().refusal is not None
    assert site.waiting == 0


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

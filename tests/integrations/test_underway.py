"""Who is short of tokens that a response under way may give back hears its outcome first, and then a refusal if any."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.base.steps import run
from batchlimit.integrations.enforcement import AsyncEnforcer, Enforcer, Outcome, Response, charging
from batchlimit.integrations.enforcement.charging import Underway
from batchlimit.integrations.enforcement.plan import Bill
from batchlimit.rules import Request, Rule, Rules
from tests.nodes import await_fact

LOGIN = Request("POST", "/login", {})
RIGHT, WRONG = Response(200), Response(401)


def rules(quota: str = "1/hour") -> Rules:
    return Rules([Rule("login", quota, key="login", match="POST /login", charge=[401])])


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's patience ends because the machine is busy."""
    monkeypatch.setattr(charging, "_HOLD", 60.0)


def test_a_key_is_open_until_the_last_of_its_responses_has_ended() -> None:
    (login,), open_ones = list(rules()), Underway(Event)
    charged = (login, "login", 1)
    for _ in range(2):
        open_ones.begin([charged])
    (uncharged,) = Rules([Rule("all", "1/hour", key="login")])
    assert open_ones.among(Bill([(uncharged, "login", 1), (login, "other", 1)]).settled) == set(), (
        "none gives back what this one did"
    )
    for left in {"login"}, set[str](), set[str]():
        open_ones.end("login")
        assert open_ones.among([charged]) == left


@pytest.mark.parametrize(
    ("is_open", "were", "seconds", "decides_again"),
    [
        (False, set(), 1.0, False),
        (False, {"login"}, 1.0, True),  # it has just ended
        (False, {"login"}, 0.0, False),
        (True, set(), 0.0, False),
    ],
)
def test_whose_patience_has_ended_or_for_whom_nothing_is_under_way_does_not_wait(
    is_open: bool, were: set[str], seconds: float, decides_again: bool, monkeypatch: pytest.MonkeyPatch
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
    assert open_ones.among(charged) == {"login"}
    enforcer.settle(last, RIGHT)
    assert open_ones.among(charged) == set()


class Threads:
    """Requests of threads."""

    def __init__(self, quota: str) -> None:
        self.enforcer = Enforcer(RateLimiter.from_url("memory://", rules(quota).quotas), rules(quota))
        self._pool = ThreadPoolExecutor(8)

    def begin(self) -> Any:
        return self._pool.submit(self.enforcer.admit, LOGIN)

    def result(self, begun: Any) -> Outcome:
        found: Outcome = begun.result()
        return found

    def end(self, outcome: Outcome, response: Response) -> None:
        self.enforcer.settle(outcome, response)

    def until(self, fact: Callable[[], bool]) -> None:
        await_fact(fact, "somebody waits")

    def close(self) -> None:
        self._pool.shutdown()


class Tasks:
    """Requests of tasks."""

    def __init__(self, quota: str) -> None:
        self._loop = asyncio.Runner()
        self._loop.run(self._open(quota))

    async def _open(self, quota: str) -> None:
        self.enforcer = AsyncEnforcer(AsyncRateLimiter.from_url("memory://", rules(quota).quotas), rules(quota))

    def begin(self) -> Any:
        return self._loop.get_loop().create_task(self.enforcer.admit(LOGIN))

    def result(self, begun: Any) -> Outcome:
        async def awaited() -> Outcome:
            found: Outcome = await begun
            return found

        return self._loop.run(awaited())

    def end(self, outcome: Outcome, response: Response) -> None:
        self._loop.run(self.enforcer.settle(outcome, response))

    def until(self, fact: Callable[[], bool]) -> None:
        async def a_turn() -> None:
            await asyncio.sleep(0)

        while not fact():
            self._loop.run(a_turn())

    def close(self) -> None:
        self._loop.close()


@pytest.fixture(params=[Threads, Tasks])
def open_site(request: pytest.FixtureRequest) -> Any:
    """What makes a site of this API, each closed after the test."""
    made: list[Any] = []

    def make(quota: str = "1/hour") -> Any:
        made.append(request.param(quota))
        return made[-1]

    yield make
    for each in made:
        each.close()


def waiting(site: Any, count: int) -> Callable[[], bool]:
    held: dict[str, list[Any]] = site.enforcer._charging.underway._waiting
    return lambda: len(held.get("login", ())) == count


def test_who_comes_during_a_right_login_is_admitted_after_it(open_site: Any) -> None:
    site = open_site()
    first = site.result(site.begin())
    second = site.begin()
    site.until(waiting(site, 1))
    site.end(first, RIGHT)
    assert site.result(second).refusal is None


def test_who_comes_during_a_wrong_login_is_refused_after_it(open_site: Any) -> None:
    site = open_site()
    first = site.result(site.begin())
    second = site.begin()
    site.until(waiting(site, 1))
    site.end(first, WRONG)
    assert site.result(second).refusal.status == 429
    assert site.result(site.begin()).refusal.status == 429


def test_no_more_wait_at_once_than_the_burst_has_tokens(open_site: Any) -> None:
    site = open_site("2/hour")
    admitted = [site.result(site.begin()) for _ in range(2)]
    held = [site.begin() for _ in range(2)]
    site.until(waiting(site, 2))
    assert site.result(site.begin()).refusal.status == 429
    for each in admitted:
        site.end(each, RIGHT)
    assert [site.result(each).refusal for each in held] == [None, None]


def test_a_slow_response_is_waited_for_a_moment_only(open_site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charging, "_HOLD", 0.02)
    site = open_site()
    site.result(site.begin())
    assert site.result(site.begin()).refusal.status == 429
    assert waiting(site, 0)()


def test_a_cancelled_request_waits_no_more() -> None:
    site = Tasks("1/hour")
    site.result(site.begin())
    second = site.begin()
    site.until(waiting(site, 1))
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        site.result(second)
    assert waiting(site, 0)()
    site.close()

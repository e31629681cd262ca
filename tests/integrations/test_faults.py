"""Faults that each request repeats: the log learns of them once a minute, and they are counted always."""

import logging
from typing import Any

import pytest

from batchlimit import ConcurrencyLimiter
from batchlimit.integrations import wsgi
from batchlimit.integrations.checks import Checks
from batchlimit.integrations.counters import Counters, Faults, RuleCounts
from batchlimit.integrations.enforcement import Response
from batchlimit.laws import Fixed
from batchlimit.rules import Rule
from tests.integrations.enforcers import Twin
from tests.sync.stage import Clock, together

TIMELINE = [  # (seconds that pass, thing, whether it is told, times that it was not told before)
    (0.0, "a", True, 0),
    (0.0, "a", False, 0),
    (0.0, "b", True, 0),
    (59.9, "a", False, 0),
    (0.1, "a", True, 2),
    (59.9, "a", False, 0),
    (600.0, "a", True, 1),
    (60.0, "b", True, 0),
]


def test_a_thing_is_told_once_a_minute_and_how_often_it_was_not(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    faults = Faults(clock=clock)
    for seconds, thing, told, missed in TIMELINE:
        clock.pass_by(seconds)
        caplog.clear()
        faults.tell(thing, "%s failed: %s", thing, ValueError("so"))
        since = f" (and {missed} times more since the last message)" if missed else ""
        assert caplog.messages == ([f"{thing} failed: so{since}"] if told else [])


def test_the_traceback_is_written_with_what_is_told(caplog: pytest.LogCaptureFixture) -> None:
    faults = Faults(clock=Clock())
    faults.tell("a", "failed: %s", ValueError("so"))
    faults.tell("b", "failed: %s", ValueError("so"), trace=False)
    faults.tell("c", "failed: %s", "so")
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False]


def fails(*_: Any) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("rule", "counted"),
    [
        (Rule("it", "9/hour", key="it", cost=fails), {"no_key": 5}),
        (Rule("it", "9/hour", key="it", charge=fails), {"acquired": 5}),
        (Rule("it", "9/hour", key="it", cost=lambda _: 99, mode="shadow"), {"shadow_refused": 5}),
    ],
    ids=["cost", "charge", "shadow"],
)
def test_a_function_that_raises_for_each_request_is_told_once_a_minute(
    asynchronous: bool, rule: Rule, counted: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    twin = Twin(asynchronous, [rule], Clock(), checks=False)
    for _ in range(5):
        twin.settle(twin.admit(), Response(200))
    assert twin.counts("it") == {"matched": 5, "faults": 5, **counted}
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    twin.clock.pass_by(60)
    twin.settle(twin.admit(), Response(200))
    assert "and 4 times more" in caplog.messages[1]
    twin.close()


def test_a_limiter_that_cannot_be_asked_is_counted_and_told(asynchronous: bool, caplog: Any) -> None:
    twin = Twin(asynchronous, [Rule("it", "9/hour", key="it")], Clock())
    twin._do(twin.limiter.close)
    assert {twin.admit().refusal.status for _ in range(5)} == {503}  # type: ignore[union-attr]
    assert twin.counts("it") == {"matched": 5, "faults": 5}
    assert len(caplog.messages) == 1
    assert "its limit (it) could not be asked" in caplog.messages[0]
    twin.close()


def test_a_function_of_a_concurrency_limit_that_raises_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b""]

    with ConcurrencyLimiter(Fixed(1)) as limiter:
        limited = wsgi.ConcurrencyLimitMiddleware(
            app, limiter, bypass=fails, partition=fails, outcome=fails, priority=fails
        )
        for _ in range(3):
            body: Any = limited({}, lambda *_: None)  # type: ignore[arg-type]
            body.close()
    assert sorted(message.split("`")[1] for message in caplog.messages) == [
        "bypass",
        "outcome",
        "partition",
        "priority",
    ]


THREADS, TIMES = 8, 2000


@pytest.mark.usefixtures("restless")
def test_no_count_is_lost_among_threads() -> None:
    counters = Counters([Rule("all", "1/s", key="all")], 1.0, Clock(), Checks(False))

    def work() -> None:
        for _ in range(TIMES):
            next(counters.requests)
            counters.look({})
            next(counters.unmatched)
            next(counters.asked_after_all)
            next(counters.rules["all"].matched)
            counters.fault("ask", ["all"], "failed")

    together(THREADS, work)
    found = counters.statistics()
    assert (found.requests, found.unmatched) == (THREADS * TIMES, 0)
    assert found.rules["all"] == RuleCounts(matched=THREADS * TIMES, faults=THREADS * TIMES)

"""When a store is given up, as a table of (what happened, is it open, did that change it)."""

import pytest

from batchlimit.errors import StoreUnavailable
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.reservoir.statistics import Health
from batchlimit.stores import outage
from batchlimit.stores.outage import THRESHOLD, Breaker, Outages

AWAY = StoreUnavailable("away")


def played(events: str) -> list[tuple[bool, object]]:
    """What each event does: x a failure, o an answer, at 0, 1, 2 ... seconds."""
    breaker = Breaker()
    told: list[tuple[bool, object]] = []
    for now, event in enumerate(events):
        what = breaker.failed(AWAY, float(now)) if event == "x" else breaker.answered(float(now))
        told.append((breaker.opened_at is not None, what))
    return told


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ("x", [(False, False)]),
        ("xxx", [(False, False), (False, False), (True, True)]),
        ("xxxx", [(False, False), (False, False), (True, True), (True, False)]),
        ("xxoxx", [(False, False), (False, False), (False, None), (False, False), (False, False)]),
        ("xxxxo", [(False, False), (False, False), (True, True), (True, False), (False, 2.0)]),
        ("xxxoo", [(False, False), (False, False), (True, True), (False, 1.0), (False, None)]),
        ("xxxoxx", [(False, False), (False, False), (True, True), (False, 1.0), (False, False), (False, False)]),
    ],
)
def test_three_failures_in_a_row_open_it_and_one_answer_closes_it(events: str, told: list[tuple[bool, object]]) -> None:
    assert THRESHOLD == 3
    assert played(events) == told


def test_parts_fail_apart_and_are_counted_together() -> None:
    outages = Outages(lambda: "redis://h:1/0")
    told = [(outages.failed(part, AWAY), outages.health) for part in "ababa"]
    assert told[:4] == [(False, Health(count, 0, available=True)) for count in (1, 2, 3, 4)]
    assert told[4] == (True, Health(5, 1, available=False))
    outages.answered("b")
    assert outages.health == Health(5, 1, available=False)
    outages.answered("a")
    assert outages.health == Health(5, 1, available=True)


@pytest.mark.parametrize(("pause", "relapses"), [(0.1, [0, 1, 2]), (9.9, [0, 1, 2]), (10.1, [0, 0, 0])])
def test_one_that_opens_again_soon_has_relapsed(pause: float, relapses: list[int]) -> None:
    breaker, now, told = Breaker(), 0.0, []
    for _ in range(3):
        for _ in range(THRESHOLD):
            breaker.failed(AWAY, now)
        told.append(breaker.relapses)
        breaker.answered(now)
        now += pause
    assert told == relapses


def test_one_failure_is_a_blip() -> None:
    breaker = Breaker()
    told = []
    for _ in range(3):
        told.append(breaker.is_failing)
        breaker.failed(AWAY, 0.0)
    assert told == [False, False, True]


def test_it_remembers_why() -> None:
    breaker = Breaker()
    breaker.failed(AWAY, 0.0)
    assert breaker.error is AWAY
    breaker.answered(1.0)
    assert breaker.error is None


# What callers and operators read of a store that is away


ADDRESS = "redis://h:1/0"
NOW = 100.0


def refusal(part: str, error: StoreUnavailable, pause: float, patched: pytest.MonkeyPatch) -> CircuitOpen:
    outages = Outages(lambda: ADDRESS)
    for _ in range(THRESHOLD):
        outages.failed(part, error)
    outages.breakers[part].plan_probe(pause, NOW)
    patched.setattr(outage, "steady", lambda: NOW)
    return outages.refusal(part)


@pytest.mark.parametrize(
    ("part", "error", "pause", "message"),
    [
        (
            "",
            StoreUnavailable("redis://h:1/0 failed: ConnectionError: refused"),
            0.4,
            "redis://h:1/0 is away (circuit open, next probe in 0.40 s, see on_failure): ConnectionError: refused",
        ),
        (
            "",
            StoreUnavailable("redis://h:1/0 did not answer in time"),
            -0.4,
            "redis://h:1/0 is away (circuit open, next probe in 0.00 s, see on_failure): did not answer in time",
        ),
        (
            "g:2",
            StoreUnavailable("no idea"),
            1.0,
            "g:2 of redis://h:1/0 is away (circuit open, next probe in 1.00 s, see on_failure): no idea",
        ),
    ],
)
def test_an_open_circuit_names_the_address_and_the_cause_once_and_the_next_probe(
    part: str, error: StoreUnavailable, pause: float, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(refusal(part, error, pause, monkeypatch)) == message


def test_an_open_circuit_has_the_code_of_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    found = refusal("", StoreUnavailable("full", code="OOM"), 0.1, monkeypatch)
    assert (found.address, found.code) == (ADDRESS, "OOM")

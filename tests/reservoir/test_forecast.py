"""What memory says of a call that has not come yet."""

import math
from typing import Any

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import Level
from batchlimit.errors import RateLimited
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.overrides.override import KeyRule
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.denial_cache import NO_DENIALS, DenialCache
from batchlimit.reservoir.forecast import Prospect, longest_denial, longest_refusal
from batchlimit.reservoir.statistics import decision, outlook
from batchlimit.reservoir.waiter import NOBODY, Waiter
from tests.reservoir.entry import DEAD, HUNDRED, Entry
from tests.reservoir.world import about


@pytest.mark.parametrize(
    ("cost", "at", "prospect"), [(2, 0.0, Prospect.ADMITTED), (3, 0.0, Prospect.UNKNOWN), (2, 1.0, Prospect.UNKNOWN)]
)
def test_a_call_is_admitted_by_what_is_leased_and_else_the_store_knows(
    cost: int, at: float, prospect: Prospect
) -> None:
    assert Entry(tokens=2).reservoir.forecast.prospect(cost, at) is prospect


def test_the_store_is_asked_last_of_all() -> None:
    """A call at several keys goes through them in this order."""
    assert sorted(Prospect) == [Prospect.REFUSED, Prospect.ADMITTED, Prospect.UNKNOWN]
    assert len(set(Prospect)) == 3


@pytest.mark.parametrize(("deadline", "is_hopeless"), [(0.25, True), (1.25, False)])
def test_who_waits_is_hopeless_where_the_bucket_is_short_until_after_its_deadline(
    deadline: float, is_hopeless: bool
) -> None:
    entry = Entry(Quota(1.0, 1))
    entry.refuse(entry.fetch(entry.join(1)), retry_after=1.0)
    assert entry.reservoir.forecast.is_hopeless(entry.join(1, deadline), 0.0) is is_hopeless


@pytest.mark.parametrize(
    ("cost", "at", "wait"), [(3, 0.12, 0.03), (3, 0.15, 0.35), (3, 0.5, 0.0), (2, 0.12, 0.0), (101, 0.12, 0.0)]
)
def test_memory_refuses_while_the_circuit_is_open_or_the_bucket_is_short(cost: int, at: float, wait: float) -> None:
    """Two tokens are here; the circuit is tried again at 0.15 s, and the bucket has more at 0.5 s."""
    entry = Entry(tokens=2)
    entry.reservoir.state.denials = DenialCache.dry(0.5, 3, 0.0)
    entry.reservoir.state.failing_until = 0.15
    assert entry.reservoir.forecast.denied_for(cost, at) == about(wait)


def test_the_instant_at_which_the_circuit_is_tried_again_refuses_nobody() -> None:
    entry = Entry()
    entry.reservoir.state.failing_until = 0.15
    assert [entry.reservoir.forecast.denies(1, at) for at in (0.1, 0.15)] == [True, False]


@pytest.mark.parametrize(("at", "spendable"), [(0.999, 2), (1.0, 0), (2.0, 0)])
def test_what_is_leased_is_spendable_until_its_end_and_remains_as_long(at: float, spendable: int) -> None:
    """The bucket was last seen with 90."""
    forecast = Entry(tokens=2).reservoir.forecast
    assert (forecast.spendable(at), forecast.remaining(at)) == (spendable, 90 + spendable)


def test_what_is_laid_out_for_callers_without_the_lock_remains() -> None:
    entry = Entry(tokens=20)
    entry.reservoir.tokens.take(1)
    assert entry.reservoir.forecast.remaining(0.0) == 90 + 19


@pytest.mark.parametrize(("cost", "at", "is_refused"), [(5, 0.0, True), (6, 0.0, True), (6, 0.01, False)])
def test_who_was_told_to_come_back_for_many_may_ask_once_the_bucket_has_so_many(
    cost: int, at: float, is_refused: bool
) -> None:
    """In a dry spell after a grant, of which 5 is a large cost; the bucket had 5, and refills one in 0.01 s."""
    entry = Entry()
    entry.grant(entry.fetch(entry.join(1)), tokens=1, level=5)
    entry.reservoir.state.denials = DenialCache.dry(0.05, 1, 0.0, large_cost=6)
    assert entry.reservoir.forecast.denies(cost, at) is is_refused


@pytest.mark.parametrize(("at", "seconds"), [(0.0, 0.05), (0.005, 0.045), (0.01, 0.0)])
def test_who_waits_for_many_asks_once_the_bucket_has_so_many(at: float, seconds: float) -> None:
    entry = Entry()
    entry.grant(entry.fetch(entry.join(1)), tokens=1, level=5)
    entry.reservoir.state.denials = DenialCache.dry(0.05, 1, 0.0, large_cost=6)
    assert entry.reservoir.forecast.asks_in(entry.join(6), at) == about(seconds)


@pytest.mark.parametrize(
    ("cost", "in_line", "wait"), [(1, True, 0.7), (1, False, 0.01), (10, False, 0.7), (50, False, 0.7)]
)
def test_who_is_refused_may_come_when_those_ahead_and_its_own_cost_fit(cost: int, in_line: bool, wait: float) -> None:
    """The bucket is empty, and 10 are known not to fit for 0.7 s; the first in line needs so many."""
    entry = Entry()
    entry.grant(entry.fetch(first := entry.join(10)), level=0, retry_after=0.7)
    assert entry.reservoir.forecast.retry_after(first, 0.0) == about(0.7)
    waiter = entry.join(cost) if in_line else Waiter(cost, NO_WAIT, NOBODY)
    assert entry.reservoir.forecast.retry_after(waiter, 0.0) == about(wait)


def test_what_is_held_here_need_not_be_refilled() -> None:
    entry = Entry(tokens=5)
    entry.grant(entry.fetch(entry.join(10)), level=0, retry_after=0.02)
    assert entry.reservoir.forecast.retry_after(Waiter(100, NO_WAIT, NOBODY), 0.0) == about(0.95)


def test_who_is_refused_where_nothing_is_known_may_come_when_its_cost_is_refilled() -> None:
    forecast = Entry(Quota(100.0, 100) & Quota(50.0, 200), tokens=1).reservoir.forecast
    assert forecast.retry_after(Waiter(10, NO_WAIT, NOBODY), 0.0) == about(0.2)


def test_the_bucket_counts_again_once_the_store_is_back() -> None:
    """Though the fallback goes on until it is full: the next outage is to find it as it was."""
    entry = Entry(policy=FailurePolicy.local(4))
    entry.reservoir.failed(entry.fetch(entry.join(20)), DEAD, 0.0)
    entry.refuse(entry.fetch(entry.join(10), 0.1), 0.1)
    assert entry.reservoir.state.fallback.bucket is not None
    assert entry.reservoir.forecast.retry_after(Waiter(30, NO_WAIT, NOBODY), 0.1) == about(0.3)


TWO = Quota(100.0, 100, [Quota(1.0, 60)])


@pytest.mark.parametrize(
    ("quota", "told", "owed", "expected"),
    [
        # of one bandwidth: what the bucket last had, and how long it takes to fill from there
        (HUNDRED, {"level": 90, "levels": (90.5,)}, 0, (92, 0.08, None)),
        (HUNDRED, {"level": 0, "levels": (0.5,)}, 0, (2, 0.98, None)),
        # of several bandwidths: as each refills meanwhile
        (TWO, {"level": 20, "levels": (90.0, 20.5)}, 0, (22, 37.0, 1)),
        # where the bucket owes: from what it owes on
        (HUNDRED, {"level": -1, "levels": (-0.5,)}, 0, (2, 0.485, None)),
        # what is owed here, but for the two, is still to be charged
        (HUNDRED, {"level": 40, "levels": (40.0,)}, 7, (35, 0.15, None)),
        (HUNDRED, {"level": 3, "levels": (3.0,)}, 7, (0, 0.52, None)),
    ],
)
def test_a_decision_tells_what_remains_and_when_all_is_back(
    quota: Quota, told: dict[str, Any], owed: int, expected: tuple[int, float, int | None]
) -> None:
    """Told half a second after the answer; two tokens are here, if they are not owed."""
    entry = Entry(quota)
    entry.grant(entry.fetch(entry.join(1)), tokens=3, **told)
    if owed:
        entry.reservoir.lifecycle.debit(owed, 0.0)
    decision = entry.reservoir.forecast.told(0.0, "local", 0.5)
    assert (decision.remaining, decision.reset_after, decision.binding) == (
        expected[0],
        about(expected[1]),
        expected[2],
    )


@pytest.mark.parametrize(
    ("quota", "level", "held", "levels", "expected"),
    [
        (HUNDRED, 40, 2, (40.0,), (True, 42, 0.0, 0.58)),
        (HUNDRED, 0, 0, (0.4,), (False, 0, 0.006, 0.996)),
        # what is held here serves, whatever the bucket owes
        (HUNDRED, -3, 2, (-3.5,), (True, 2, 0.0, 1.015)),
        (HUNDRED, -3, 0, (-3.5,), (False, 0, 0.045, 1.035)),
        # only the level is known, of whole tokens
        (HUNDRED, -3, 0, (), (False, 0, 0.04, 1.0)),
        # each bandwidth by itself; the bucket may have told of fewer than there are by now
        (TWO, 0, 0, (5.0, 0.5), (False, 0, 0.5, 59.5)),
        (TWO, 0, 0, (0.5,), (False, 0, 0.005, 0.995)),
        (TWO, 20, 0, (40.0,), (True, 20, 0.0, 0.6)),
        (Quota(0), 7, 3, (7.0,), (False, 0, math.inf, math.inf)),
    ],
)
def test_a_look_tells_whether_one_fits_and_when_all_is_back(
    quota: Quota, level: int, held: int, levels: tuple[float, ...], expected: tuple[bool, int, float, float]
) -> None:
    seen = outlook(quota, level, held, levels=levels)
    assert (seen.allowed, seen.remaining, seen.retry_after, seen.reset_after) == about(expected)


def test_where_only_whole_tokens_are_known_all_is_back_when_one_more_is_there_by_the_time_that_is_told() -> None:
    assert decision(HUNDRED, 7, 0.005, "denied").reset_after == about(0.005 + 0.92)


def test_a_debt_is_charged_before_a_look_counts_what_is_there() -> None:
    entry = Entry(TWO)
    entry.grant(entry.fetch(entry.join(1)), tokens=1, level=0, retry_after=0.0)
    entry.reservoir.lifecycle.debit(7, 0.0)
    seen = entry.reservoir.forecast.at_level(Level(9, 0, 1, (40.0, 9.0)), 0.0)
    assert (seen.allowed, seen.remaining, seen.reset_after) == (True, 2, about(58.0))


@pytest.mark.parametrize(("cost", "retry_after"), [(1, 0.3), (2, 0.0)])
def test_a_look_at_a_bucket_tells_of_what_memory_refuses_a_call_of_one(cost: int, retry_after: float) -> None:
    entry = Entry()
    entry.reservoir.state.denials = DenialCache.dry(0.3, cost, 0.0)
    seen = entry.reservoir.forecast.at_level(Level(50, 0, 1, (50.0,)), 0.0)
    assert (seen.allowed, seen.remaining, seen.retry_after) == (not retry_after, 50, about(retry_after))


def test_a_look_at_a_key_in_shadow_mode_refuses_nobody() -> None:
    entry = Entry(KeyRule(HUNDRED, "shadow"))
    seen, fine = (entry.reservoir.forecast.at_level(Level(each, 0, 1, (each,)), 0.0) for each in (0, 5))
    assert (seen.allowed, seen.remaining, seen.retry_after, seen.source) == (True, 0, 0.0, "shadow")
    assert (fine.allowed, fine.remaining, fine.source) == (True, 5, "store")


@pytest.mark.parametrize(
    ("policy", "owed", "told"),
    [
        (FailurePolicy.closed(), 0, None),
        (FailurePolicy.local(4), 0, (True, 25, "fallback")),
        (FailurePolicy.local(4), 5, (True, 20, "fallback")),
        (FailurePolicy.local(4), 25, (False, 0, "fallback")),
    ],
)
def test_while_the_store_is_away_the_fallback_tells(
    policy: FailurePolicy, owed: int, told: tuple[bool, int, str] | None
) -> None:
    entry = Entry(policy=policy)
    entry.reservoir.lifecycle.debit(owed, 0.0)
    seen = entry.reservoir.forecast.without_store(0.0)
    assert (seen if seen is None else (seen.allowed, seen.remaining, seen.source)) == told


def test_what_the_fallback_decided_is_told_of_all_bandwidths_at_once() -> None:
    entry = Entry(TWO, policy=FailurePolicy.local(4))
    entry.reservoir.failed(entry.fetch(entry.join(5)), DEAD, 0.0)
    told = entry.reservoir.forecast.told(0.0, "local", 0.0)
    assert (told.remaining, told.reset_after, told.source, told.binding) == (10, 50.0, "fallback", None)


# A call of several keys


def denied(**seconds: float) -> dict[str, Entry]:
    """Keys that memory refuses for so long."""
    entries = {key: Entry() for key in seconds}
    for key, entry in entries.items():
        entry.reservoir.state.denials = DenialCache.dry(seconds[key], 1, 0.0) if seconds[key] else NO_DENIALS
    return entries


@pytest.mark.parametrize(
    ("entries", "longest"),
    [
        (denied(a=0.1, b=0.3, c=0.2), ("b", 0.3)),
        (denied(a=0.2, b=0.2), ("a", 0.2)),
        (denied(a=0.0, b=0.0), None),
        (denied(c=0.2), ("c", 0.2)),  # of the others nothing is known
        (denied(d=0.2), None),  # the call does not name it
        ({"a": Entry(tokens=1)} | denied(b=0.2), ("b", 0.2)),
        ({"a": Entry(tokens=1)}, None),
    ],
)
def test_the_key_that_is_refused_for_longest_decides(
    entries: dict[str, Entry], longest: tuple[str, float] | None
) -> None:
    found = longest_denial(entries, {"a": 1, "b": 1, "c": 1}, 0.0)
    assert (found and (found[0], found[2])) == (longest and (longest[0], about(longest[1])))
    assert found is None or found[1] is entries[found[0]]


@pytest.mark.parametrize(("at", "key"), [(0.1, None), (0.15, "a")])
def test_no_key_decides_while_the_store_is_away(at: float, key: str | None) -> None:
    """Of one of them the circuit is open until 0.15 s."""
    entries = denied(a=0.4, b=0.0)
    entries["b"].reservoir.state.failing_until = 0.15
    found = longest_denial(entries, {"a": 1, "b": 1}, at)
    assert (found and found[0]) == key


@pytest.mark.parametrize(("seconds", "key"), [(0.0, "mine"), (0.2, "mine"), (0.4, "a")])
def test_a_call_of_several_keys_is_refused_by_the_one_that_is_refused_for_longer(seconds: float, key: str) -> None:
    refusal = RateLimited("mine", 0.2)
    found = longest_refusal(refusal, denied(a=seconds), {"a": 1}, 0.0)
    assert (found is refusal) == (key == "mine")
    assert found.key == key

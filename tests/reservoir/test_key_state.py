"""What the parts of a key's reservoir ask of its state, and what the state tells callers without the lock."""

import math

import pytest

from batchlimit.quota.quota import Quota
from batchlimit.reservoir.denial_cache import NO_DENIALS, DenialCache
from tests.reservoir.entry import HUNDRED, Entry
from tests.reservoir.world import figures


@pytest.mark.parametrize(
    ("tokens", "dry_cost", "failing_until", "denied_until"),
    [
        (0, 1, -math.inf, 0.5),
        (0, 2, -math.inf, -math.inf),  # a cost of 1 may fit
        (0, 1, 0.7, 0.7),
        (0, 2, 0.7, 0.7),
        (3, 1, 0.7, -math.inf),  # who comes finds tokens
    ],
)
def test_callers_of_one_token_are_refused_without_the_lock_while_none_is_here_and_none_to_be_had(
    tokens: int, dry_cost: int, failing_until: float, denied_until: float
) -> None:
    state = Entry(tokens=tokens).reservoir.state
    state.denials, state.failing_until = DenialCache.dry(0.5, dry_cost, 0.0), failing_until
    state.tokens.denied_until = 0.9
    state.publish()
    assert state.tokens.denied_until == denied_until


@pytest.mark.parametrize(
    ("burst", "prompt", "is_held_up"), [(15, 1, True), (16, 1, False), (31, 2, True), (100, 0, False)]
)
def test_requests_wait_for_callers_that_hold_a_sixteenth_of_the_burst_and_confirm_at_once(
    burst: int, prompt: int, is_held_up: bool
) -> None:
    state = Entry(Quota(100.0, burst)).reservoir.state
    state.lease.prompt = prompt
    assert state.is_held_up is is_held_up


def test_what_is_here_is_held_wherever_it_is() -> None:
    entry = Entry(tokens=20)
    assert entry.held == 20, "loose"
    entry.reservoir.tokens.take(1)
    assert entry.held == 19, "laid out"
    fetch = entry.fetch(entry.join(25), 0.1)
    assert (entry.held, entry.reservoir.tokens.available) == (19, 0), "reserved for who waits"
    entry.grant(fetch, 0.1, 6, starts_in=0.3)
    assert entry.held == 25, "granted for later"
    assert figures(entry.reservoir)[:2] == (2, 0)


def test_one_token_to_come_speaks_against_an_ask() -> None:
    entry = Entry()
    entry.grant(entry.fetch(entry.join(1)), tokens=1, starts_in=0.3)
    entry.reservoir.state.denials = NO_DENIALS  # the bucket was short as well, as far as that is known
    assert [entry.reservoir.state.is_short(at) for at in (0.1, 0.3)] == [True, True], "until it is taken in"
    entry.step(entry.join(1), 0.3)
    assert not entry.reservoir.state.is_short(0.3)


def test_a_bucket_begins_by_a_quota_that_admits_something() -> None:
    assert Entry(HUNDRED).reservoir.state.to_ask_with == HUNDRED
    assert Entry(Quota(0)).reservoir.state.to_ask_with is None


def test_in_an_empty_queue_nothing_is_needed() -> None:
    entry = Entry()
    assert entry.reservoir.state.first_cost == 0
    entry.join(7)
    entry.join(1)
    assert entry.reservoir.state.first_cost == 7

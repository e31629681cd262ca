"""The table of states in reservoir.py: each transition that it names, and no other."""

import math
from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any, NamedTuple

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import LimiterClosed
from batchlimit.quota.failure_policy import CLOSED, FailurePolicy
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.denial_cache import NO_DENIALS
from batchlimit.reservoir.statistics import Health, PolicyStatistics, Statistics
from batchlimit.reservoir.waiter import Fail, Fetch, Waiter
from tests.reservoir.entry import DEAD, HUNDRED, PATIENT, Entry
from tests.reservoir.world import Waking, figures

OPEN = FailurePolicy.open()
ENDED = LimiterClosed("this limiter was closed")


class World:
    """A reservoir with one caller, who took a token of ten at 0.0 s; their lease ends at 1.0 s."""

    def __init__(self, policy: FailurePolicy) -> None:
        self.entry = Entry(tokens=10, policy=policy)
        self.reservoir = self.entry.reservoir
        self.waiter = Waiter(20, PATIENT, Waking())

    @property
    def states(self) -> str:
        """Which one of each group the reservoir is in."""
        reservoir = self.reservoir
        flight = "quiet" if reservoir.state.in_flight is None else "in flight"
        source = "fallback" if reservoir.state.lease.borrowed else "leased"
        life = "closed" if reservoir.lifecycle.ended else "retired" if reservoir.state.is_retired else "open"
        return f"{flight}, {source}, {life}"

    def ask(self) -> Fetch:
        self.reservoir.admission.join(self.waiter)
        step = self.reservoir.step(self.waiter, 0.1)
        assert isinstance(step, Fetch)
        return step

    def join(self) -> None:
        self.reservoir.admission.join(self.waiter)

    def leave(self) -> None:
        self.reservoir.leave(self.waiter, 0.2)

    def answer(self) -> None:
        self.entry.grant(self._asked, 0.2, tokens=20)

    def fail(self) -> None:
        self.reservoir.failed(self._asked, DEAD, 0.2)

    def interrupt(self) -> None:
        self.reservoir.failed(self._asked, None, 0.2)

    @property
    def _asked(self) -> Fetch:
        asked = self.reservoir.state.in_flight
        assert isinstance(asked, Fetch)
        return asked

    def ask_anew(self) -> None:
        """Of the store, while the tokens are borrowed: more than the fallback lent."""
        late = Waiter(100, PATIENT, Waking())
        self.reservoir.admission.join(late)
        assert isinstance(self.reservoir.step(late, 0.9), Fetch)

    def refund(self) -> None:
        """After the end of the lease: the tokens are to go to the store."""
        assert self.reservoir.lifecycle.refund(Waiter(1, NO_WAIT, Waking()), 1.5) is not None

    def gave_back(self) -> None:
        self.reservoir.gave_back(1.6)

    def renew(self) -> None:
        self.reservoir.tokens.take(1)
        assert isinstance(self.reservoir.lifecycle.tend(0.95), Fetch)

    def expire(self) -> None:
        assert self.reservoir.lifecycle.tend(1.2) is None

    def close(self) -> None:
        self.reservoir.lifecycle.close(ENDED, Waiter(0, NO_WAIT, Waking()))

    def drain(self) -> None:
        assert self.reservoir.lifecycle.drain() is not None

    def last_ask(self) -> None:
        assert self.reservoir.lifecycle.last_ask(0.3) is not None

    def evict(self) -> None:
        assert self.reservoir.lifecycle.evict()

    def cannot_be_evicted(self) -> None:
        assert not self.reservoir.lifecycle.evict()


class Row(NamedTuple):
    """What happens to a reservoir that is quiet, leased and open, and which states that brings it to, in turn."""

    name: str
    events: tuple[Callable[[World], object], ...]
    states: tuple[str, ...]
    policy: FailurePolicy = CLOSED


QUIET, ASKED = "quiet, leased, open", "in flight, leased, open"
TABLE = (
    Row("a step returns a request", (World.ask,), (ASKED,)),
    Row("`tend` returns a request", (World.renew,), (ASKED,)),
    Row("a refund returns a request", (World.refund,), (ASKED,)),
    Row("`granted` reports", (World.ask, World.answer), (ASKED, QUIET)),
    Row("`failed` reports", (World.ask, World.fail), (ASKED, QUIET)),
    Row("`gave_back` reports", (World.refund, World.gave_back), (ASKED, QUIET)),
    Row("the caller of a request leaves", (World.ask, World.leave), (ASKED, QUIET)),
    Row("a request fails where others decide", (World.ask, World.fail), (ASKED, "quiet, fallback, open"), OPEN),
    Row("a request is interrupted", (World.ask, World.interrupt), (ASKED, QUIET), OPEN),
    Row("nobody waits when a request fails", (World.renew, World.fail), (ASKED, QUIET), OPEN),
    Row(
        "borrowed tokens end with the next Grant",
        (World.ask, World.fail, World.ask_anew, World.answer),
        (ASKED, "quiet, fallback, open", "in flight, fallback, open", QUIET),
        OPEN,
    ),
    Row("the key becomes dormant", (World.expire,), ("quiet, leased, retired",)),
    Row("the key is evicted", (World.evict,), ("quiet, leased, retired",)),
    Row("a key that somebody waits for stays", (World.join, World.cannot_be_evicted), (QUIET, QUIET)),
    Row("a key that was asked for stays", (World.ask, World.cannot_be_evicted), (ASKED, ASKED)),
    Row("the limiter closes", (World.close,), ("quiet, leased, closed",)),
    Row("and its tokens go back", (World.close, World.drain), ("quiet, leased, closed", "in flight, leased, closed")),
    Row(
        "and the answer that was lost is asked for once more",
        (World.ask, World.fail, World.close, World.last_ask),
        (ASKED, QUIET, "quiet, leased, closed", "in flight, leased, closed"),
    ),
)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_reservoir_moves_between_the_states_of_the_table(row: Row) -> None:
    world = World(row.policy)
    assert world.states == QUIET
    seen = []
    for event in row.events:
        event(world)
        seen.append(world.states)
    assert tuple(seen) == row.states


def test_a_waiter_without_a_verdict_fails_when_the_limiter_is_closed() -> None:
    world = World(CLOSED)
    world.join()
    world.close()
    assert world.waiter.verdict == Fail(ENDED)
    late = Waiter(20, math.inf, Waking())  # more than is here
    world.reservoir.admission.join(late)
    assert world.reservoir.step(late, 0.3) == Fail(ENDED)


# What the parts of a key's reservoir ask of its state, and what the state tells callers without the lock


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


# What counts begin with, and which of them tell two statistics apart


NOTHING = Statistics(keys=0, admitted=0, refused=0, calls=0, held=0, waiting=0)
OTHER: Any = "another histogram"


def test_counts_begin_at_nothing_and_the_store_is_there() -> None:
    assert list(astuple(NOTHING)[:-2]) == [0] * 11 + [True] + [0] * 3
    assert set(astuple(PolicyStatistics())[:-1]) == {0}
    assert Health()[:-1] == (0, 0, True)


def test_how_long_something_took_and_parts_of_a_sum_tell_nothing_apart() -> None:
    assert NOTHING == replace(NOTHING, durations=OTHER) == replace(NOTHING, policies=OTHER)
    assert replace(NOTHING, owed=1) != NOTHING
    assert PolicyStatistics() == PolicyStatistics(waits=OTHER)

"""The low mark: where it lies, and that in steady demand somebody looks before a caller comes upon it."""

import math
from collections.abc import Callable
from random import Random

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import GiveBack
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.requests import first_look, low_mark, next_look
from batchlimit.reservoir.sizing import FixedBatch
from batchlimit.reservoir.waiter import Fetch
from tests.reservoir.entry import Entry
from tests.reservoir.world import about
from tests.sync.interrupter import Interrupter

RICH = Quota(1e6, 1_000_000)
BATCH = 1000


@pytest.mark.parametrize(
    ("tokens", "demand", "round_trip", "low"),
    [
        (1000, 4000.0, 0.001, 7),  # 6 are asked for in a round trip and a half
        (1000, 4000.0, 0.0002, 3),
        (10, 4000.0, 0.001, 5),  # half of them at the most
        (1, 100.0, 0.001, 0),
        (1000, 0.0, 0.001, 0),
        (1000, 4000.0, 0.0, 0),  # nobody knows how long an answer takes
        (1000, 400_000.0, 0.0001, 61),
        (1000, 500_000.0, 0.0001, 76),
        (1000, 600_000.0, 0.0001, 0),  # all gone in less than 2 ms
    ],
)
def test_few_is_what_is_asked_for_until_more_are_here(tokens: int, demand: float, round_trip: float, low: int) -> None:
    assert low_mark(tokens, demand, round_trip) == low


@pytest.mark.parametrize(
    ("tokens", "demand", "seconds"),
    [
        (1000, 4000.0, 0.75 * 0.245),
        (256, 100.0, 0.75 * 2.36),
        (255, 100.0, math.inf),  # too few for three looks
        (1000, 16_000.0, 0.75 * 980 / 16_000),
        (1000, 19_600.0, 0.75 * 0.05),
        (1000, 20_000.0, math.inf),  # gone in 49 ms
        (1000, 0.0, math.inf),
    ],
)
def test_many_that_last_long_are_looked_at(tokens: int, demand: float, seconds: float) -> None:
    assert first_look(tokens, 20, demand) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("spare", "demand", "seconds"),
    [
        (100, 4000.0, 0.01875),
        (40, 4000.0, 0.007),
        (17, 4000.0, 0.00125),
        (16, 4000.0, 0.0),
        (0, 4000.0, 0.0),
        (5, 0.0, math.inf),
    ],
)
def test_the_next_look_is_nearer_until_more_are_fetched(spare: int, demand: float, seconds: float) -> None:
    assert next_look(spare, demand) == pytest.approx(seconds)


@pytest.mark.parametrize(("tokens", "is_wanted"), [(4, False), (3, True)])
def test_more_are_wanted_once_fewer_are_here_than_the_low_mark(tokens: int, is_wanted: bool) -> None:
    reservoir = Entry(RICH, tokens).reservoir
    reservoir.tokens.set_low_watermark(4)
    reservoir.admission.advance(0.5)
    assert reservoir.requests.wants_refill == is_wanted


class Demand:
    """Calls of cost 1 at random instants; an answer takes a millisecond, and the keeper comes 0.2 ms late."""

    def __init__(self) -> None:
        self.entry = Entry(RICH, sizer=FixedBatch(BATCH))
        self.reservoir = self.entry.reservoir
        self.chance, self.now = Random(42), 0.0
        self.under_way: Fetch | None = None
        self.answered_at = math.inf
        self.looks = self.fetches = self.surprised = 0
        self._send(self.entry.fetch(self.entry.join(1, NO_WAIT)))

    def run(self, rate: float, seconds: float) -> None:
        """Count looks and fetches of this time alone, and the callers who came upon the mark."""
        self.looks = self.fetches = self.surprised = 0
        end = self.now + seconds
        while (at := self.now + self.chance.expovariate(rate)) < end:
            self._happen(until=at)
            self._call()
        self._happen(until=end)

    def rest(self, seconds: float) -> None:
        """Count the same, while nobody calls."""
        self.looks = self.fetches = self.surprised = 0
        self._happen(until=self.now + seconds)

    def _happen(self, until: float) -> None:
        while (at := min(self.answered_at, self.reservoir.lifecycle.due() + 0.0002)) <= until:
            self.now = max(self.now, at)
            if self.under_way is not None:
                self._answer(self.under_way)
            else:
                self._tend()
        self.now = until

    def _call(self) -> None:
        if self.reservoir.tokens.take(1) == NO_WAIT:
            self.surprised += 1
            self.reservoir.requests.take_low(1)

    def _tend(self) -> None:
        self.looks += 1
        match self.reservoir.lifecycle.tend(self.now):
            case Fetch() as fetch:
                self._send(fetch)
            case GiveBack():
                self.reservoir.gave_back(self.now)
            case None:
                pass

    def _send(self, fetch: Fetch) -> None:
        self.fetches += 1
        self.under_way, self.answered_at = fetch, self.now + 0.001

    def _answer(self, fetch: Fetch) -> None:
        self.under_way, self.answered_at = None, math.inf
        self.entry.grant(fetch, self.now, fetch.ask.want)


@pytest.mark.parametrize(("rate", "surprised"), [(1500.0, 4), (4000.0, 1), (12_000.0, 0)])
def test_in_steady_demand_hardly_a_caller_comes_upon_the_mark(rate: float, surprised: int) -> None:
    demand = Demand()
    demand.run(rate, 2.0)
    demand.run(rate, 20.0)
    batches = 20.0 * rate / BATCH
    assert demand.surprised <= surprised
    assert demand.fetches <= 1.06 * batches + 1
    assert demand.looks <= 5 * batches


def test_a_surge_comes_upon_the_mark() -> None:
    demand = Demand()
    demand.run(1500.0, 2.0)
    demand.run(40_000.0, 0.1)
    assert demand.surprised >= 1
    assert demand.fetches >= 3


def test_at_rest_nobody_looks() -> None:
    """But a few times within the lease, ever more rarely: less is expected each time."""
    demand = Demand()
    demand.run(4000.0, 2.1)
    demand.rest(0.85)
    assert demand.looks <= 5
    demand.rest(5.0)
    assert demand.looks <= 3, "what is left goes back, and the key retires"
    assert demand.reservoir.state.is_retired


def test_while_more_is_on_its_way_nobody_looks() -> None:
    demand = Demand()
    demand.run(4000.0, 2.0)
    while demand.under_way is None:
        demand.run(4000.0, 0.0005)
    assert demand.reservoir.lifecycle.due() == math.inf
    while demand.reservoir.tokens.take(1) != NO_WAIT:
        pass
    assert demand.reservoir.lifecycle.tend(demand.now) is None
    assert not demand.reservoir.requests.wants_refill


def test_who_came_upon_the_mark_is_not_forgotten_over_a_look() -> None:
    entry = Entry(RICH, sizer=FixedBatch(BATCH))
    entry.grant(entry.fetch(entry.join(BATCH)), 0.05, 2 * BATCH)
    look = entry.reservoir.lifecycle.due()
    assert entry.reservoir.tokens.low_watermark > 200
    assert look < 0.5, "long before the lease ends"
    assert entry.reservoir.requests.take_low(700) != NO_WAIT
    entry.tend(look)


@pytest.mark.parametrize("change", ["a grant arrives", "a request begins"])
def test_after_an_interrupt_nothing_is_wanted_for_ever(change: str) -> None:
    """An ask takes along what was wanted before it; else an idle key asks for more after each answer."""
    lines = 0
    while is_interrupted(lines + 1, change):
        lines += 1
    assert lines


def is_interrupted(n: int, change: str) -> bool:
    """Return whether a change runs so many lines of the module; check what an interrupt at the last one left."""
    entry = Entry(RICH, sizer=FixedBatch(BATCH))
    one, fetch = entry.reservoir, entry.fetch(entry.join(BATCH))
    work: list[Callable[[], object]] = [lambda: entry.grant(fetch, 0.05, 2 * BATCH), lambda: one.requests.ask(0.06)]
    interrupter = Interrupter(n, "reservoir/requests", under_lock=True)
    if change == "a request begins":
        work.pop(0)()
    was_interrupted = interrupter.run(work[0])
    if one.tokens.low_watermark:  # as the caller does who finds fewer tokens
        one.requests.want_refill()
    one.requests.ask(0.07)
    assert not one.requests.wants_refill, f"interrupted in {interrupter.line}"
    return was_interrupted


def test_a_look_before_it_is_time_fetches_nothing() -> None:
    entry = Entry(RICH, sizer=FixedBatch(BATCH))
    entry.grant(entry.fetch(entry.join(BATCH)), 0.05, 2 * BATCH)
    look = entry.reservoir.lifecycle.due()
    assert entry.reservoir.lifecycle.tend(look) is None
    assert look < entry.reservoir.lifecycle.due() < 1.0


def test_what_begins_later_is_looked_at_before_its_end() -> None:
    entry = Entry()
    gone = entry.join(5)
    entry.grant(entry.fetch(gone), 0.0, 5, starts_in=0.5, lease=1.0, level=-5)
    entry.reservoir.leave(gone, 0.0)
    assert entry.reservoir.lifecycle.due() == about(1.4)


def test_at_a_bucket_that_was_short_nobody_looks() -> None:
    """What is refilled there is asked for at its pace."""
    entry = Entry(Quota(4000.0, 4000), sizer=FixedBatch(BATCH))
    entry.grant(entry.fetch(entry.join(1000)), 0.001, 1000)
    entry.grant(entry.fetch(entry.join(1), 0.001), 0.002, 300, level=0, active_instances=1000)
    leased = entry.reservoir.tokens
    assert leased.low_watermark == 0
    assert entry.reservoir.lifecycle.due() == about(
        leased.expires - 0.1 * (leased.expires - entry.reservoir.state.lease.starts)
    )


def test_nobody_looks_at_tokens_that_have_gone() -> None:
    """A keeper that comes late, as after a suspended machine's sleep, once leased a batch that nobody asked for."""
    demand = Demand()
    demand.run(4000.0, 2.0)
    assert demand.reservoir.requests.checks_at < math.inf
    late = demand.reservoir.tokens.expires + 5.0
    assert demand.reservoir.lifecycle.tend(late) is None
    assert not demand.reservoir.requests.wants_refill
    assert demand.reservoir.requests.checks_at == math.inf

"""When a reservoir retires to let its key rest, what keeps it awake, and that its next one goes on where it ended."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import Ask
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import KeySnapshot
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.sizing import BatchSizer, FixedBatch, GrowingBatch, TimeBatch
from batchlimit.reservoir.waiter import NOBODY, Fetch, Waiter
from tests.reservoir.entry import HUNDRED, Entry
from tests.reservoir.world import about, answer, made

AWAKE = 1.0


def served(**rest: Any) -> Entry:
    """It spent the one token that it was granted, and the lease was over after a second."""
    entry = Entry(**rest)
    entry.grant(entry.fetch(entry.join(1)), 0.0, 1)
    return entry


def rests_at(entry: Entry) -> float:
    """When it retires with a snapshot, if nobody comes."""
    at = due = entry.reservoir.lifecycle.due()
    while not entry.reservoir.state.is_retired and due < math.inf:
        entry.reservoir.lifecycle.tend(due)
        at, due = due, entry.reservoir.lifecycle.due()
    return at if entry.reservoir.lifecycle.snapshot is not None else math.inf


def test_one_whose_lease_lasts_waits_for_its_end() -> None:
    """A refund is free till then."""
    entry = Entry()
    entry.grant(entry.fetch(entry.join(1)), 0.0, 1, lease=5.0)
    assert rests_at(entry) == 5.0


def test_one_that_is_dry_stays_while_it_refuses_from_memory() -> None:
    entry = Entry()
    entry.refuse(entry.fetch(entry.join(1, NO_WAIT), 0.8), 0.8, retry_after=0.4)
    waiter = entry.join(1, NO_WAIT)
    entry.step(waiter, 1.1)
    assert entry.reservoir.forecast.denied_for(1, 1.15) > 0.0
    assert rests_at(entry) == about(1.1 + AWAKE)
    assert rests_at(Entry(Quota(0.0, 0))) == 1.0  # then it looks whether the rate was raised


def test_one_that_is_idle_leaves_no_memo() -> None:
    assert rests_at(served(idle_after=0.5)) == math.inf


SIZERS: list[BatchSizer] = [TimeBatch(), FixedBatch(3), GrowingBatch()]
DAILY = Quota(100 / 86400, 100)


@given(
    st.sampled_from(SIZERS),
    st.sampled_from([HUNDRED, DAILY, HUNDRED & DAILY]),
    st.integers(0, 90),
    st.integers(1, 30),
    st.floats(0.0, 20.0),
)
def test_who_wakes_asks_what_it_would_have_asked(
    sizer: BatchSizer, quota: Quota, level: int, instances: int, seconds: float
) -> None:
    """As if the key had stayed awake: of demand, epoch, level and instances nothing is forgotten."""
    asks = []
    for is_to_rest in (False, True):
        here = reservoir(sizer, quota, 0.0, None)
        ask(here, 0.25, level, instances)
        if is_to_rest:
            here.lifecycle.tend(2.0)
            assert here.lifecycle.snapshot is not None
            here = reservoir(sizer, quota, 2.0 + seconds, KeySnapshot.unpack(here.lifecycle.snapshot.pack()))
        else:
            here.state.count(2.0)  # as the keeper's look does
        asks.append(ask(here, 2.0 + seconds, level, instances))
    awake, woken = asks
    assert woken._replace(seq=awake.seq, age=awake.age) == awake


def reservoir(sizer: BatchSizer, quota: Quota, now: float, snapshot: KeySnapshot | None) -> Reservoir:
    return made(quota, now, sizer=sizer, idle_after=100.0, snapshot=snapshot)


def ask(here: Reservoir, now: float, level: int, instances: int) -> Ask:
    """What it asks for its first caller; it is granted that, and all of it is spent."""
    waiter = Waiter(1, math.inf, NOBODY)
    here.admission.join(waiter)
    fetch = here.step(waiter, now)
    assert isinstance(fetch, Fetch)
    here.granted(fetch, answer(1, kept=fetch.ask.held, level=level, active_instances=instances), now + 0.001, 1.0)
    return fetch.ask

"""A single ask does what a reservoir would do that is made for one call: the two are held against each other here."""

import itertools
import math
from typing import Any

import pytest

from batchlimit.bucket.messages import Ask, Grant
from batchlimit.keyspace.single_ask import SingleAsk
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import KeySnapshot
from batchlimit.reservoir.instance import Instance
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.sizing import Demand, FixedBatch
from batchlimit.reservoir.waiter import Admit, Fetch, Waiter
from batchlimit.waiting import NO_WAIT
from tests.reservoir.entry import HUNDRED
from tests.reservoir.world import Waking, answer, made

SEVERAL = HUNDRED & Quota(1.0, 40)
SLOW = Quota(0.1, 20)
KNOWN = KeySnapshot(4.0, 1.5, 4.0, last_want=1, epoch=7, level=60, active_instances=3, round_trip=0.002, heard=4.0)
NOW = 5.0
QUOTAS = pytest.mark.parametrize("quota", [HUNDRED, SEVERAL, SLOW], ids=str)
FILLS = pytest.mark.parametrize("fill", ["full", "share", "empty"])
SNAPSHOTS = pytest.mark.parametrize("known", [None, KNOWN], ids=["unknown", "dormant"])


def begun(
    quota: Quota = HUNDRED,
    cost: int = 1,
    deadline: float = NO_WAIT,
    known: KeySnapshot | None = None,
    **options: Any,
) -> tuple[SingleAsk, Ask | None]:
    single = SingleAsk("key", quota, cost, deadline)
    instance = Instance("a", itertools.count(1), 0.0)
    return single, single.begin(known, instance, Options(**options), NOW)


def settled(grant: Grant, now: float = NOW, **begin: Any) -> bytes | None:
    single, ask = begun(**begin)
    assert ask is not None
    return single.settle(grant, now)


def counted(snapshot: KeySnapshot, now: float) -> KeySnapshot:
    """What it is at `now`: a reservoir counts once more when an answer comes."""
    demand = Demand(snapshot.counted_at, snapshot.demand)
    demand.observe(0, now)
    return snapshot._replace(demand=demand.rate, counted_at=demand.at)


@QUOTAS
@FILLS
@SNAPSHOTS
@pytest.mark.parametrize("deadline", [NO_WAIT, math.inf, NOW + 0.01])
@pytest.mark.parametrize("cost", [1, 3])
def test_it_asks_and_remembers_what_a_reservoir_would(
    quota: Quota, fill: str, known: KeySnapshot | None, deadline: float, cost: int
) -> None:
    options: dict[str, Any] = {"sizer": FixedBatch(1), "fill": fill}
    single, ask = begun(quota, cost, deadline, known, **options)
    reservoir, waiter = made(quota, NOW, snapshot=known, **options), Waiter(cost, deadline, Waking())
    reservoir.admission.join(waiter)
    fetch = reservoir.step(waiter, NOW)
    assert isinstance(fetch, Fetch)
    assert ask == fetch.ask
    assert single.fetch == fetch
    grant, now = answer(cost, level=39, lease=0.5), NOW + 0.004
    packed = single.settle(grant, now)
    reservoir.granted(fetch, grant, now, 1.0)
    assert waiter.verdict == Admit(NOW + 0.5)
    assert packed is not None
    left = reservoir.lifecycle._snapshot(now)
    assert left is not None
    assert counted(KeySnapshot.unpack(packed), now) == pytest.approx(left)


@pytest.mark.parametrize("batch", [2, 10])
def test_a_key_that_leases_ahead_comes_into_use(batch: int) -> None:
    assert begun(sizer=FixedBatch(batch))[1] is None
    assert begun(cost=batch, sizer=FixedBatch(batch))[1] is not None


def test_a_key_that_is_asked_for_often_comes_into_use() -> None:
    busy = KNOWN._replace(demand=50.0, counted_at=NOW)
    assert begun(known=KNOWN)[1] is not None
    assert begun(known=busy)[1] is None


@pytest.mark.parametrize(
    "grant",
    [
        answer(0, retry_after=0.1),
        answer(1, starts_in=0.1),
        answer(1, quota=SLOW),
        answer(1, lease=0.0),
        answer(1, level=1),
        answer(1, level=24),
    ],
    ids=["refused", "later", "another quota", "expired", "short", "nearly short"],
)
def test_an_answer_that_leaves_something_to_do_is_for_a_reservoir(grant: Grant) -> None:
    assert settled(grant) is None


def test_an_answer_of_another_bucket_is_for_a_reservoir_which_counts_the_loss() -> None:
    assert settled(answer(1, epoch=7), known=KNOWN) is not None
    assert settled(answer(1, epoch=8), known=KNOWN) is None


@SNAPSHOTS
def test_a_reservoir_goes_on_with_it_as_if_it_had_sent_it(known: KeySnapshot | None) -> None:
    single, _ = begun(known=known)
    reservoir, waiter = made(HUNDRED, NOW, snapshot=known), Waiter(1, NO_WAIT, Waking())
    reservoir.resume(waiter, single.fetch)
    assert reservoir.state.in_flight is single.fetch
    reservoir.granted(single.fetch, answer(1, lease=0.5), NOW, 1.0)
    assert waiter.verdict == Admit(NOW + 0.5)
    assert reservoir.state.statistics.calls == 1
    assert reservoir.state.statistics.admitted == 1


def test_a_reservoir_that_hears_of_no_answer_repeats_its_number() -> None:
    single, ask = begun()
    assert ask is not None
    reservoir, waiter = made(HUNDRED, NOW), Waiter(1, math.inf, Waking())
    reservoir.resume(waiter, single.fetch)
    reservoir.failed(single.fetch, None, NOW)
    again = reservoir.step(waiter, NOW)
    assert isinstance(again, Fetch)
    assert again.repeated
    assert again.ask.seq == ask.seq

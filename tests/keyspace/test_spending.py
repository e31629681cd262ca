"""Which calls spend and which keys lease; and what is known of a key after a spend, whatever became of it."""

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import Ask, Grant, Spend, Spent
from batchlimit.errors import StoreUnavailable
from batchlimit.keyspace.census import Tallies
from batchlimit.keyspace.kept_keys import DormantKeys
from batchlimit.keyspace.spending import KeySpend, Outcome, Spending
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.lookup import policies_of, quota_rule
from batchlimit.quota.overrides.code import Code, Rank
from batchlimit.quota.overrides.override import KeyRule, Override
from batchlimit.quota.overrides.overrides import InForce, Overrides
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import InstanceCount, KeySnapshot
from batchlimit.reservoir.options import Instance, Options
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.sizing import BatchSizer, FixedBatch, TimeBatch, Usage
from batchlimit.reservoir.waiter import NOBODY, Fetch, Waiter
from tests.reservoir.world import NoRules
from tests.sync.stage import Clock

HUNDRED = Quota(100.0, 100)
SLOW = Quota(0.1, 20)
SEVERAL = HUNDRED & Quota(1.0, 40)
NOTHING = Quota(0.0)
NOW = 1000.0
KNOWN = KeySnapshot(NOW - 1, 0.5, NOW - 1, last_want=1, epoch=7, level=60, active_instances=0, round_trip=0.002,
                    heard=NOW - 1)  # fmt: skip
AWAY = StoreUnavailable("away")


class AtHalf:
    """A sizer that wants a lease where the bucket is rich."""

    def want(self, usage: Usage) -> int:
        return 9 if usage.rich else 1


AT_HALF = AtHalf()


class AtLeastTwo(TimeBatch):
    """Wants a token more than a first call costs."""

    def want(self, usage: Usage) -> int:
        return max(2, super().want(usage))


MOCK = Mock(spec=TimeBatch, want=lambda usage: 2)


class Told(NoRules):
    """Overrides as of now."""

    def __init__(self, *overrides: Override) -> None:
        super().__init__()
        self.in_force = InForce.at(Overrides(3, overrides), 0.0)


class Heard(NoRules):
    """Overrides that are to be looked at from now on, and what was told of them."""

    def __init__(self, heard: list[tuple[int, float]]) -> None:
        super().__init__()
        self.looks_at, self.heard = NOW, heard

    def hear(self, told: int, now: float) -> None:
        self.heard.append((told, now))


class Keys:
    """A Spending, and what is around it."""

    def __init__(
        self,
        quota: Quota | dict[str, Quota] = HUNDRED,
        *overrides: Override,
        mode: Any = "enforce",
        revision: int = 0,
        **options: Any,
    ) -> None:
        self.clock, self.entries = Clock(), dict[str, str]()
        usual: dict[str, Any] = {"sizer": FixedBatch(1), "revision": revision}
        made = Options(**(usual | options))
        self.dormant = DormantKeys(made.idle_after, made.max_keys)
        self.instance = Instance("a", itertools.count(1), NoRules())
        if overrides:
            self.instance = Instance("a", itertools.count(1), Told(*overrides))
        rule = quota_rule(quota)
        self.tallies = Tallies(policies_of(rule))
        self.settled = self.tallies.spends[0]  # spends admitted by the first policy, their tokens, and losses
        self.spending: Spending = Spending(
            self.entries,
            self.dormant,
            self.instance,
            made,
            clock=self.clock,
            tallies=self.tallies,
            code=Code(rule, "closed", mode, Rank(revision, NOW - 5)),
        )

    def begin(self, cost: Any = 1, key: str = "ann") -> KeySpend | None:
        begun = self.spending.begin({key: cost})
        return begun[0] if begun else None

    def begun(self, cost: Any = 1, key: str = "ann") -> KeySpend:
        begun = self.begin(cost, key)
        assert begun is not None
        return begun

    def settle(self, spend: KeySpend, *, level: float = 50.0, epoch: int = 7, wait: float = 0.0) -> float:
        levels = (level,) * len(spend.message.quota.bandwidths)
        return self.settled_with([spend], (Spent(wait == 0.0, wait, epoch, levels),))[1]

    def settled_with(self, begun: Sequence[KeySpend], outcome: Outcome) -> tuple[Outcome, float]:
        """Return what is of use of the outcome, and when to forget the keys."""
        kept = dict[str, bytes]()
        outcome = self.spending.hear_of(begun, outcome, self.clock(), kept)
        return outcome, self.spending.keep(kept, self.clock())

    def known(self, key: str = "ann") -> KeySnapshot | None:
        """What is known of a key."""
        return self.dormant.look_up(key)

    def know(self, snapshot: KeySnapshot = KNOWN, key: str = "ann") -> None:
        self.dormant.put(key, snapshot, self.clock())


@pytest.mark.parametrize(
    ("known", "sizer", "cost", "spends"),
    [
        (None, FixedBatch(1), 1, True),
        (None, FixedBatch(2), 1, False),
        (None, FixedBatch(2), 2, True),
        (None, TimeBatch(), 1, True),
        (None, AtLeastTwo(), 1, False),
        (None, AT_HALF, 1, True),
        (None, MOCK, 1, False),
        (KNOWN, TimeBatch(), 1, True),
        (KNOWN._replace(demand=4.0, counted_at=NOW), TimeBatch(0.4, 0.4), 1, True),
        (KNOWN._replace(demand=5.0, counted_at=NOW), TimeBatch(0.4, 0.4), 1, False),
        (KNOWN._replace(demand=5.0, counted_at=NOW), TimeBatch(0.4, 0.4), 2, True),
        (KNOWN._replace(demand=5.0, counted_at=NOW - 1), TimeBatch(0.4, 0.4), 1, True),
        (KNOWN._replace(demand=4.0, counted_at=NOW), TimeBatch(1.2, 1.2), 1, True),
        (KNOWN._replace(demand=4.1, counted_at=NOW), TimeBatch(1.2, 1.2), 1, False),
        (KNOWN._replace(demand=40.0, counted_at=NOW), TimeBatch(1.2, 1.2), 10, True),
        (KNOWN._replace(level=50), AT_HALF, 1, False),
        (KNOWN._replace(level=49), AT_HALF, 1, True),
        (KNOWN._replace(active_instances=1), FixedBatch(1), 1, False),
        (KNOWN._replace(active_instances=1, heard=NOW - 9.999995), FixedBatch(1), 1, False),
        (KNOWN._replace(active_instances=1, heard=NOW - 10), FixedBatch(1), 1, True),
    ],
    ids=[
        "an unknown key", "a sizer that wants more", "but not more than the call costs", "nobody asked lately",
        "the user's own sizer, made of the default", "nobody knows whether the bucket is rich", "and a mock of it",
        "or seldom", "less than the next call in a lease", "more", "more, but not more than it costs", "a while ago",
        "one call alone just now", "more than one", "one call that cost as much",
        "half of the bucket is there", "less than half",
        "leased of a second ago", "and ten seconds ago, nearly", "ten seconds ago",
    ],
)  # fmt: skip
def test_a_call_spends_unless_more_is_wanted_than_it_costs_or_instances_lease_of_the_bucket(
    known: KeySnapshot | None, sizer: BatchSizer, cost: int, spends: bool
) -> None:
    keys = Keys(sizer=sizer)
    if known is not None:
        keys.know(known)
    assert (keys.begin(cost) is not None) is spends
    if not spends:
        assert keys.known() == known
        assert len(keys.spending) == 0


@pytest.mark.parametrize(
    ("override", "quota"),
    [
        (Override("bob", SLOW), HUNDRED),
        (Override("ann", SLOW), SLOW),
        (Override("a*", SLOW, mode="enforce"), SLOW),
        (Override("ann", NOTHING), None),
        (Override("ann", None, mode="shadow"), None),
        (Override("ann", None, mode="open"), None),
        (Override("ann", None, weight=2), None),
        (Override("ann", None, on_failure=FailurePolicy("open")), None),
    ],
    ids=str,
)
def test_a_call_spends_by_the_overrides_unless_they_say_more_than_a_quota(
    override: Override, quota: Quota | None
) -> None:
    keys = Keys(HUNDRED, override)
    begun = keys.begin()
    assert (begun and begun.message.quota) == quota
    if begun is not None:
        assert begun.message.rules == keys.instance.rules.in_force.edition > 0
        assert begun.code == HUNDRED


@pytest.mark.parametrize(("mode", "spends"), [("enforce", True), ("shadow", False), ({"ann": "shadow"}, False),
                                              ({"bob": "shadow"}, True)])  # fmt: skip
def test_a_shadow_needs_an_entry(mode: Any, spends: bool) -> None:
    mode = mode | {"*": "enforce"} if isinstance(mode, dict) else mode
    assert (Keys(mode=mode).begin() is not None) is spends


@pytest.mark.parametrize(("later", "age"), [(0.0, 5.0), (-4.5, 0.5)])
def test_a_spend_tells_how_old_its_quota_is_and_of_which_rank(later: float, age: float) -> None:
    keys = Keys(revision=4)
    keys.clock.pass_by(later)
    assert keys.begun(3).message == Spend("ann", HUNDRED, 3, age=age, revision=4)


@pytest.mark.parametrize("order", [1, -1], ids=["as they came", "the last one first"])
def test_the_demand_of_calls_whose_answers_come_is_known(order: int) -> None:
    keys = Keys(sizer=TimeBatch())
    first, second = keys.begun(), keys.begun()
    for each in [first, second][::order]:
        keys.settle(each)
    assert len(keys.spending) == 0
    found = keys.known()
    assert found is not None
    assert found.demand == first.demand_so_far().rate == 8.0
    assert keys.begin() is None


def test_a_charged_spend_leaves_a_snapshot_and_counts() -> None:
    keys = Keys({"ann": HUNDRED, "*": SLOW})
    keys.know()
    spend = keys.begun(3)
    keys.clock.now += 0.004
    assert keys.settle(spend, level=39.75, epoch=7) == keys.clock.now + 10.0
    assert keys.settled == [1, 3, 0]
    assert keys.known() == KeySnapshot(
        used=NOW + 0.004,
        demand=spend.demand_so_far().rate,
        counted_at=spend.demand_so_far().at,
        last_want=3,
        epoch=7,
        level=39.75,
        active_instances=0,
        round_trip=0.002,
        heard=NOW + 0.004,
    )
    assert len(keys.spending) == 0
    first = keys.begun(1, "bob")
    keys.clock.now += 0.125
    keys.settle(first)
    assert keys.known("bob").round_trip == 0.125, "of the first answer"  # type: ignore[union-attr]


class Counting(InstanceCount):
    """Notes when it learns how many instances there are."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, float]] = []

    def learn(self, instances: int, now: float) -> None:
        self.told.append((instances, now - NOW))
        super().learn(instances, now)


def test_who_was_charged_is_counted_among_the_instances_every_fifteen_seconds_at_most() -> None:
    keys = Keys()
    count = Counting()
    keys.spending._instance = replace(keys.instance, count=count)
    for at in (0.0, 14.9, 15.0, 29.9, 30.0, 31.0):
        keys.clock.now = NOW + at
        keys.settle(keys.begun(key=f"at {at}"))
    assert (count.told, count.instances) == ([(1, 0.0), (1, 15.0), (1, 30.0)], 1)


def test_the_level_that_is_told_is_that_of_the_poorest_bandwidth() -> None:
    keys = Keys(SEVERAL)
    spend = keys.begun()
    keys.settled_with([spend], (Spent(True, 0.0, 7, (88.5, 12.25)),))
    told = spend.decision()
    assert (told.allowed, told.remaining, told.limit, told.source) == (True, 12, 40, "store")
    assert spend.refusal().level == 12


@pytest.mark.parametrize(("known", "epoch", "is_lost"), [(7, 7, False), (7, 8, True), (1, 2, True)])
def test_a_bucket_of_another_epoch_is_counted_as_a_loss(known: int, epoch: int, is_lost: bool) -> None:
    keys = Keys()
    keys.know(KNOWN._replace(epoch=known))
    keys.settle(keys.begun(), epoch=epoch)
    assert keys.settled == [1, 1, is_lost]


def test_a_bucket_that_may_have_ended_is_no_loss() -> None:
    keys = Keys(Quota(100.0, 10))
    keys.know(KNOWN._replace(level=9, heard=NOW - 6, used=NOW))
    keys.settle(keys.begun(), epoch=8)
    assert keys.settled == [1, 1, 0]


def test_a_refused_spend_tells_the_reservoir_of_its_bucket_and_of_the_loss() -> None:
    keys = Keys()
    keys.know()
    spend = keys.begun(30)
    keys.settle(spend, level=20.0, epoch=8, wait=0.1)
    reservoir = Reservoir(
        KeyRule(HUNDRED), keys.instance, Options(), NOW + 0.1, rank=Rank(0, NOW), snapshot=keys.known()
    )
    waiter = Waiter(30, NO_WAIT, NOBODY)
    fetch = keys.spending.fetch(spend)
    assert fetch == Fetch(Ask("a", 1, 30, 30, 30, epoch=7, look=False), HUNDRED, NOW, 30, False)
    assert spend.refusal() == Grant(0, 0, 0.0, 0.0, 0.1, 20, 0, epoch=8, version=1, rules=-1, levels=(20.0,))
    assert reservoir.adopt(waiter, fetch)
    assert (reservoir.state.calls, reservoir.requests.last_target, reservoir.state.used) == (1, 30, NOW)
    assert not reservoir.adopt(Waiter(30, NO_WAIT, NOBODY), fetch), "another one was faster"
    reservoir.granted(fetch, spend.refusal(), NOW, 1.0)
    assert reservoir.state.view.losses == 1
    assert reservoir.state.view.expected(HUNDRED, NOW)[0] == 8
    assert waiter.verdict is not None
    assert reservoir.forecast.denied_for(30, NOW) == pytest.approx(0.1, rel=1e-3)
    assert reservoir.state.view.known()[2] == 0  # a call that comes once this is dormant may spend
    assert keys.spending.fetch(keys.begun(key="bob")).ask.epoch == 0, "of a bucket that nobody has heard of"


@pytest.mark.parametrize(
    ("quota", "deadline", "late", "is_late"),
    [
        (HUNDRED, 0.05, 0.25, False),
        (HUNDRED, 0.05, 0.2500001, True),
        (HUNDRED, 1.0, 2.0, False),
        (HUNDRED, 1.0, 2.01, True),
        (Quota(0.02, 10), 0.05, 0.5, False),
        (Quota(0.02, 10), 0.05, 0.51, True),
        (Quota(0.0001, 10), 0.05, 1.999999, False),
        (Quota(0.0001, 10), 0.05, 2.000001, True),
    ],
    ids=str,
)
def test_an_answer_that_comes_too_late_to_be_of_use_admits_nobody(
    quota: Quota, deadline: float, late: float, is_late: bool
) -> None:
    """It is for take then. The API refunds the tokens: a window may have more than its due if they were used now."""
    keys = Keys(quota, deadline=deadline)
    keys.know()
    spend, answer = keys.begun(), (Spent(True, 0.0, 7, (5.0,)),)
    keys.clock.now += late
    outcome, _ = keys.settled_with([spend], answer)
    assert outcome == (None if is_late else answer)
    assert keys.settled[0] == (0 if is_late else 1)
    assert len(keys.spending) == 0
    found = keys.known()
    assert found is not None
    assert (found == KNOWN) is is_late


ENDS: dict[str, Callable[[Keys, KeySpend], object]] = {
    "refused": lambda keys, spend: keys.settle(spend, level=0.0, wait=0.5),
    "failed": lambda keys, spend: keys.settled_with([spend], AWAY),
    "leased of": lambda keys, spend: keys.settled_with([spend], None),
    "interrupted": lambda keys, spend: keys.spending.end([spend]),
}


def test_a_call_that_is_gone_or_that_nobody_will_answer_is_not_in_flight() -> None:
    keys = Keys()
    keys.begun()
    assert len(keys.spending) == 0, "interrupted: nobody has it any more"
    begun = keys.begun()
    assert len(keys.spending) == 1
    keys.spending.clear()
    assert (len(keys.spending), begun.place) == (0, "ann")


def test_the_revision_of_the_overrides_is_asked_for_from_its_instant_on_and_heard_of_where_it_was() -> None:
    keys, heard = Keys(), list[tuple[int, float]]()
    keys.spending._rules = rules = Heard(heard)
    for seconds, looks in (-0.001, False), (0.0, True), (0.001, True):
        keys.clock.now = rules.looks_at + seconds
        assert keys.spending.looks is looks
    for revision in (-1, 0, 3):
        keys.spending.hear(revision)
    assert heard == [(-1, keys.clock.now), (0, keys.clock.now), (3, keys.clock.now)]


@pytest.mark.parametrize("end", ENDS)
def test_a_spend_that_was_not_charged_counts_nothing_and_leaves_what_was_known(end: str) -> None:
    """Else the next one would not know that the bucket must be there, and a lost one would begin full."""
    keys = Keys()
    keys.know()
    ENDS[end](keys, keys.begun())
    assert (keys.settled, len(keys.spending)) == ([0, 0, 0], 0)
    assert keys.known() == KNOWN
    ENDS[end](keys, keys.begun(key="bob"))
    assert keys.known("bob") is None


def test_what_is_known_of_a_key_stays_known_while_it_is_asked() -> None:
    """A second call must know, too, that the bucket is to be there."""
    keys = Keys(fill="empty")
    keys.know()
    assert [keys.begun().message.fill for _ in range(2)] == [0.0, 0.0]
    assert keys.known() == KNOWN


@pytest.mark.parametrize("second", [("bob", True), ("nobody", 1)], ids=["a cost that is no int", "a key without quota"])
def test_several_keys_of_which_one_does_not_begin_leave_nothing_in_flight(second: tuple[str, Any]) -> None:
    """What is put there by each of many keys would stay."""
    keys = Keys({"ann": HUNDRED, "bob": HUNDRED})
    with contextlib.suppress(ValueError):
        assert keys.spending.begin(dict([("ann", 1), second])) is None
    assert not keys.spending._in_flight


@pytest.mark.parametrize("end", ENDS)
def test_a_key_that_came_into_use_meanwhile_keeps_no_snapshot(end: str) -> None:
    keys = Keys()
    keys.know()
    first, second = keys.begun(), keys.begun()
    keys.entries["ann"] = "entry"
    ENDS[end](keys, first)
    assert keys.settle(second) == math.inf
    assert keys.known() is None


class Raising:
    """A sizer of the user's own."""

    def want(self, usage: Usage) -> int:
        if usage.quota.burst == 20:
            raise ZeroDivisionError
        return 0


@pytest.mark.parametrize(
    ("costs", "error"),
    [({"ann": 1, "bob": 0}, None), ({"ann": 1, "nobody": 1}, ValueError), ({"ann": 1, "slow": 1}, ZeroDivisionError)],
    ids=["needs its entry", "has no quota", "its sizer raises"],
)
def test_if_one_of_several_keys_cannot_spend_nothing_is_begun(
    costs: dict[str, int], error: type[Exception] | None
) -> None:
    keys = Keys({"ann": HUNDRED, "bob": HUNDRED, "slow": SLOW}, sizer=Raising())
    keys.know()
    if error is None:
        assert keys.spending.begin(costs) is None
    else:
        with pytest.raises(error):
            keys.spending.begin(costs)
    assert len(keys.spending) == 0
    assert keys.known() == KNOWN

"""The contract of every store, in process or on a real server: what it lends, to whom, and what it takes back.

The quotas refill so slowly that the tests' own duration does not show in any whole token.
"""

import random
import threading
import time

import pytest

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.quota.quota import Quota
from batchlimit.stores.protocols import Store
from tests.depth import depth

KEY = "tenant:42"
SLOW = 0.001
HUNDRED = Quota(SLOW, 100)


class Instance:
    """A limiter instance's side of the talk: it numbers what it sends, and remembers what it holds and has seen.

    Its leases last 4 s unless told, since it says that it is 2 s away: a machine that stalls for less loses none.
    """

    def __init__(
        self, store: Store, quota: Quota = HUNDRED, *, key: str = KEY, name: str = "a", trip: float = 2.0
    ) -> None:
        self.store, self.quota, self.key, self.name, self.trip = store, quota, key, name, trip
        self.seq = self.held = self.epoch = 0
        self.age = 0.0
        self.rank = 0, 0  # rules, revision

    def ask(self, need: int, *, queued: int | None = None, want: int | None = None, back: int = 0) -> Ask:
        """The next ask: queued is at least the need and want at least the queued, unless told."""
        self.seq += 1
        queued = need if queued is None else queued
        want = queued if want is None else want
        held, epoch = self.held - back, self.epoch
        ask = Ask(self.name, self.seq, need, queued, want, held, back, age=self.age, epoch=epoch, round_trip=self.trip)
        return ask._replace(rules=self.rank[0], revision=self.rank[1])

    def send(self, ask: Ask) -> Grant:
        grant = self.store.take(self.key, self.quota, ask)
        self.held, self.epoch = grant.kept + grant.granted, grant.epoch
        return grant

    def take(self, need: int, *, queued: int | None = None, want: int | None = None, max_wait: float = 0.0) -> Grant:
        return self.send(self.ask(need, queued=queued, want=want)._replace(max_wait=max_wait))

    def report(self) -> Grant:
        """Tell what is still held, and ask for nothing."""
        return self.take(0)

    def spend(self, n: int) -> None:
        """Take n tokens for n waiting callers, who spend them at once; report it."""
        assert self.take(n).granted == n
        self.held -= n
        self.report()

    def give_back(self, tokens: int, *, held: int | None = None, refund: int = 0) -> int:
        self.seq += 1
        self.held = self.held - tokens if held is None else held
        return self.store.give_back(self.key, self.quota, GiveBack(self.name, self.seq, tokens, self.held, refund))

    def peek(self) -> Level:
        return self.store.peek(self.key, self.quota)


# What is lent


def test_an_unused_bucket_is_full(store: Store) -> None:
    assert store.peek(KEY, HUNDRED) == Level(level=100, outstanding=0, active_instances=0)


def test_a_first_ask_with_one_caller_waiting_gets_half_a_full_bucket(store: Store) -> None:
    grant = Instance(store).take(1, want=100)
    assert (grant.granted, grant.kept, grant.level, grant.active_instances) == (50, 0, 50, 1)
    assert (grant.starts_in, grant.retry_after, grant.quota) == (0.0, 0.0, None)
    assert grant.version > 0
    assert grant.epoch > 0
    assert store.peek(KEY, HUNDRED) == Level(level=50, outstanding=50, active_instances=1)


def test_waiting_callers_get_the_whole_bucket(store: Store) -> None:
    assert Instance(store).take(1, queued=100).granted == 100


def test_no_more_is_lent_than_is_wanted(store: Store) -> None:
    assert Instance(store).take(1, queued=1, want=7).granted == 7


@pytest.mark.parametrize("rate", [SLOW, 0.5, 3.0, 1000.0, 1e6])
def test_a_lease_lasts_most_of_a_refill_of_a_rich_bucket_and_two_fifths_of_a_poor_one(
    store: Store, rate: float
) -> None:
    """A second and a half, or one, at most; a tenth at least, for the instance does not say how far away it is."""
    instance = Instance(store, Quota(rate, 100), trip=0.0)
    assert instance.take(1, want=2).lease == pytest.approx(max(0.1, min(1.5, 0.75 * 100 / rate)))
    poor = Instance(store, Quota(rate, 100), key="poor", trip=0.0)
    poor.spend(60)
    assert poor.take(1, want=2).lease == pytest.approx(max(0.1, min(1.0, 0.4 * 100 / rate)), rel=1e-3)


def test_a_lease_for_waiting_callers_is_short(store: Store) -> None:
    instance = Instance(store, trip=0.0)
    assert instance.take(1).lease == pytest.approx(0.25)
    fast = Instance(store, Quota(1000.0, 100), key="near", trip=0.001)
    assert fast.take(1).lease == pytest.approx(0.04)


@pytest.mark.parametrize("quota", [HUNDRED & Quota(1000.0, 100), Quota(1000.0, 100) & HUNDRED], ids=str)
def test_the_fastest_bandwidth_bounds_the_lease(store: Store, quota: Quota) -> None:
    assert Instance(store, quota, trip=0.0).take(1).lease == pytest.approx(0.1)


def test_fifty_of_a_hundred_wanted_are_fifty(store: Store) -> None:
    instance = Instance(store, trip=0.0)
    instance.spend(50)
    assert instance.take(1, queued=100).granted == 50


def test_less_than_the_need_is_not_lent_and_a_refusal_says_when(store: Store) -> None:
    instance = Instance(store, trip=0.0)
    instance.spend(90)
    before = instance.peek()
    grant = instance.take(20, queued=100)
    assert (grant.granted, grant.level) == (0, 10)
    assert grant.retry_after == pytest.approx(10 / SLOW, rel=0.01)
    assert instance.peek() == before


def test_a_smaller_need_fits_after_a_refusal(store: Store) -> None:
    instance = Instance(store, trip=0.0)
    instance.spend(90)
    instance.take(20)
    assert instance.take(10).granted == 10


def test_a_prefetch_is_never_refused(store: Store) -> None:
    instance = Instance(store, trip=0.0)
    instance.spend(100)
    grant = instance.take(0, want=50)
    assert (grant.granted, grant.retry_after) == (0, 0.0)


def test_one_instance_holds_at_most_half_the_burst_in_reserve(store: Store) -> None:
    instance = Instance(store, trip=0.0)
    instance.take(1, want=100)
    grant = instance.take(0, want=100)
    assert (grant.granted, grant.kept) == (0, 50)


def test_a_second_instance_gets_its_part_of_half_the_rest(store: Store) -> None:
    Instance(store, name="a").take(1, want=10)
    grant = Instance(store, name="b").take(1, want=100)
    assert (grant.granted, grant.active_instances) == (22, 2)  # (100 - 10) / 2 / 2


def test_all_instances_together_hold_at_most_half_the_burst_in_reserve(store: Store) -> None:
    Instance(store, name="a").take(1, want=50)
    grants = [Instance(store, name=name).take(1, want=100).granted for name in "bc"]
    assert grants == [1, 1]  # for those who wait, there is enough


def test_an_instance_of_twice_the_weight_has_twice_the_share(store: Store) -> None:
    light, heavy = Instance(store, name="light"), Instance(store, name="heavy")
    light.take(1)
    grant = heavy.send(heavy.ask(1, want=100)._replace(weight=2))
    assert grant.granted == 33  # 99 * 2 / 3 / 2


def test_keys_do_not_share_a_bucket(store: Store) -> None:
    Instance(store, key="a").spend(100)
    assert Instance(store, key="b").take(100).granted == 100


# Repeated and late messages


def test_a_repeated_ask_gets_the_same_tokens_and_not_more(store: Store) -> None:
    instance = Instance(store)
    instance.take(10)
    ask = instance.ask(1, queued=20)
    first, level = instance.send(ask), instance.peek()
    again = instance.send(ask)
    assert (first.granted, first.kept) == (again.granted, again.kept) == (20, 10)
    assert (first.starts_in, first.retry_after, first.level) == (again.starts_in, again.retry_after, again.level)
    assert instance.peek() == level == Level(level=70, outstanding=30, active_instances=1)


def test_a_refused_ask_may_be_repeated_and_then_fit(store: Store) -> None:
    instance, other = Instance(store), Instance(store, name="b")
    other.take(100)
    ask = instance.ask(10)
    assert instance.send(ask).granted == 0
    other.give_back(100)
    assert instance.send(ask).granted == 10


def test_an_ask_that_arrives_after_a_later_one_changes_nothing(store: Store) -> None:
    instance = Instance(store)
    late, latest = instance.ask(5), instance.ask(5)
    instance.send(latest)
    before = instance.peek()
    assert store.take(KEY, HUNDRED, late).granted == 0
    assert instance.peek() == before


def test_a_give_back_that_arrives_after_a_later_ask_changes_nothing(store: Store) -> None:
    instance = Instance(store)
    instance.take(50)
    late = GiveBack("a", 2, tokens=50)
    instance.seq = 2
    instance.take(1)
    before = instance.peek()
    assert store.give_back(KEY, HUNDRED, late) == 0
    assert instance.peek() == before


@pytest.mark.parametrize("back", [GiveBack("a", 2, tokens=50), GiveBack("a", 2, tokens=20, held=30)])
def test_tokens_come_back_once(store: Store, back: GiveBack) -> None:
    instance = Instance(store)
    instance.take(50)
    assert store.give_back(KEY, HUNDRED, back) == back.tokens
    before = instance.peek()
    assert store.give_back(KEY, HUNDRED, back) == 0
    assert instance.peek() == before
    assert before.level == 50 + back.tokens
    assert before.outstanding == back.held


@pytest.mark.parametrize("held", [0, 10])
def test_a_refund_is_credited_once(store: Store, held: int) -> None:
    instance = Instance(store)
    instance.take(100)
    back = GiveBack("a", 2, tokens=0, held=held, refund=30)
    assert store.give_back(KEY, HUNDRED, back) == 30
    assert store.give_back(KEY, HUNDRED, back) == 0
    assert instance.peek().level == 30


def test_a_refund_from_an_instance_that_holds_nothing_is_credited_once(store: Store) -> None:
    Instance(store, name="b").spend(80)
    back = GiveBack("a", 1, tokens=0, refund=30)
    assert store.give_back(KEY, HUNDRED, back) == 30
    assert store.give_back(KEY, HUNDRED, back) == 0
    assert store.peek(KEY, HUNDRED).level == 50


# Spent and returned tokens


def test_tokens_not_reported_as_held_count_as_spent(store: Store) -> None:
    instance = Instance(store)
    instance.take(50)
    instance.held = 20
    grant = instance.report()
    assert (grant.granted, grant.kept) == (0, 20)
    assert instance.peek() == Level(level=50, outstanding=20, active_instances=1)


def test_an_ask_brings_unspent_tokens_back(store: Store) -> None:
    instance = Instance(store)
    instance.take(50)
    grant = instance.send(instance.ask(0, back=30))
    assert (grant.kept, grant.level) == (20, 80)
    assert instance.peek() == Level(level=80, outstanding=20, active_instances=1)


def test_an_instance_that_returns_tokens_keeps_the_others(store: Store) -> None:
    instance = Instance(store)
    instance.take(50)
    assert instance.give_back(20, held=25) == 20
    assert instance.peek() == Level(level=70, outstanding=25, active_instances=1)


def test_a_giver_that_keeps_nothing_leaves(store: Store) -> None:
    instance = Instance(store)
    instance.take(50)
    assert instance.give_back(50) == 50
    assert instance.peek() == Level(level=100, outstanding=0, active_instances=0)


def test_no_more_comes_back_than_was_held(store: Store) -> None:
    spender, instance = Instance(store, name="b"), Instance(store)
    spender.spend(40)
    instance.take(10)
    assert instance.give_back(1000, held=0) == 10
    assert instance.peek().level == 60


def test_no_more_comes_back_with_an_ask_than_was_held(store: Store) -> None:
    spender, instance = Instance(store, name="b"), Instance(store)
    spender.spend(40)
    instance.take(10)
    assert instance.send(instance.ask(0)._replace(held=0, back=1000)).level == 60


def test_an_instance_keeps_no_more_than_it_was_lent(store: Store) -> None:
    instance = Instance(store)
    instance.take(10)
    assert instance.send(instance.ask(0)._replace(held=1000)).kept == 10
    assert instance.peek() == Level(level=90, outstanding=10, active_instances=1)


def test_nothing_comes_back_from_an_instance_that_holds_nothing(store: Store) -> None:
    Instance(store, name="b").spend(40)
    stranger = Instance(store, name="stranger")
    assert stranger.give_back(10, held=0) == 0
    assert stranger.peek().level == 60


def test_an_unused_bucket_credits_nothing(store: Store) -> None:
    assert Instance(store).give_back(10, held=0) == 0
    assert store.peek(KEY, HUNDRED) == Level(level=100, outstanding=0, active_instances=0)


def test_a_refund_raises_the_level(store: Store) -> None:
    instance = Instance(store)
    instance.spend(80)
    assert instance.give_back(0, refund=30) == 30
    assert instance.peek().level == 50


def test_a_refund_leaves_room_for_leased_tokens(store: Store) -> None:
    instance = Instance(store)
    instance.take(100)
    assert instance.give_back(0, held=40, refund=1000) == 60
    assert instance.peek() == Level(level=60, outstanding=40, active_instances=1)


def test_a_refund_to_a_full_bucket_is_lost(store: Store) -> None:
    instance = Instance(store)
    instance.spend(20)
    assert instance.give_back(0, refund=50) in (19, 20)  # a fraction has flowed in, and only whole tokens count
    assert instance.peek().level == 100


# Several bandwidths

BOTH = Quota(SLOW, 100, also=[Quota(SLOW, 60)])


def test_the_scarcest_bandwidth_decides(store: Store) -> None:
    assert Instance(store, BOTH).take(1, queued=100).granted == 60


@pytest.mark.parametrize("short_one_is", ["first", "last"])
def test_a_refusal_by_one_bandwidth_takes_nothing_from_another(store: Store, short_one_is: str) -> None:
    """Of the other, 40 are left; a refund, and a short one so large that it hides nothing any more, show them."""

    def quota(burst: int) -> Quota:
        short = Quota(SLOW, burst)
        return short & HUNDRED if short_one_is == "first" else HUNDRED & short

    instance = Instance(store, quota(60))
    instance.spend(60)
    for _ in range(3):
        assert instance.take(10).granted == 0
    instance.quota = quota(600)
    assert instance.report().level == 0
    assert instance.give_back(0, refund=50) == 50
    instance.quota = quota(6000)
    assert instance.report().level == 40 + 50


def test_tokens_come_back_to_every_bandwidth(store: Store) -> None:
    instance = Instance(store, BOTH)
    instance.take(60)
    assert instance.give_back(60) == 60
    assert instance.peek().level == 60
    instance.quota = HUNDRED
    assert instance.report().level == 100


# A new quota


def test_a_raised_limit_acts_at_once_and_used_tokens_stay_used(store: Store) -> None:
    instance = Instance(store)
    instance.spend(50)
    before = instance.take(80)
    instance.quota = Quota(SLOW, 200)
    after = instance.take(80)
    assert (before.granted, after.granted, after.level) == (0, 80, 20)
    assert after.version > before.version
    assert after.quota is None


def test_a_lowered_limit_acts_at_once_and_used_tokens_stay_used(store: Store) -> None:
    instance = Instance(store)
    instance.spend(50)
    instance.quota = Quota(SLOW, 10)
    assert instance.report().level == 5


def test_a_lowered_limit_leaves_room_for_leased_tokens(store: Store) -> None:
    instance = Instance(store)
    instance.take(50)
    instance.quota = Quota(SLOW, 60)
    assert instance.report().level == 10
    assert instance.peek() == Level(level=10, outstanding=50, active_instances=1)


def test_an_older_caller_learns_the_newer_quota(store: Store) -> None:
    new, old = Instance(store, name="new"), Instance(store, name="old")
    old.age = 3600.0
    new.report()
    old.report()
    new.quota = Quota(SLOW, 200)
    changed = new.report()
    told = old.take(150)
    assert (told.quota, told.version, told.granted) == (new.quota, changed.version, 150)
    assert new.report().quota is None


def test_the_younger_quota_wins_in_any_order_of_asks(store: Store) -> None:
    """An old process that meets a key anew, or after a while, does not bring its own quota back."""
    young, old, another = (
        Instance(store, Quota(SLOW, 200), name="young"),
        Instance(store, name="old"),
        Instance(store, name="z"),
    )
    young.age, old.age, another.age = 5.0, 3600.0, 1800.0
    old.report()
    assert young.report().quota is None
    assert (old.report().quota, another.report().quota) == (young.quota, young.quota)
    assert young.report().quota is None


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)], ids=str)
def test_the_quota_of_the_highest_rank_wins_in_any_order_of_asks(store: Store, order: tuple[int, ...]) -> None:
    """Rules of the store come before the revision of the code, and that before the age, which is the only one here."""
    instances = []
    for number, rank in enumerate([(0, 0), (0, 7), (0, 8), (3, 1)]):
        instance = Instance(store, Quota(SLOW, 100 + number), name=f"{number}")
        instance.rank, instance.age = rank, float(number)
        instances.append(instance)
    for number in order:
        instances[number].report()
    highest = instances[-1]
    assert [each.report().quota for each in instances] == [highest.quota] * 3 + [None]


def test_instances_of_one_rank_obey_the_younger_quota(store: Store) -> None:
    old, young = Instance(store, name="old"), Instance(store, Quota(SLOW, 200), name="young")
    old.rank = young.rank = 5, 5
    old.age = 3600.0
    assert [each.report().quota for each in (old, young, old, young)] == [None, None, young.quota, None]


def test_an_instance_of_a_lower_rank_that_wants_the_same_quota_changes_nothing(store: Store) -> None:
    high, same, low = (Instance(store, Quota(SLOW, burst), name=f"{i}") for i, burst in enumerate([20, 20, 100]))
    high.rank = 0, 2
    assert [each.report().quota for each in (high, same, low)] == [None, None, high.quota]


def test_tokens_that_come_back_after_the_limit_was_lowered_find_no_room(store: Store) -> None:
    holder, new = Instance(store, name="holder"), Instance(store, Quota(SLOW, 10), name="new")
    holder.take(50)
    new.report()
    holder.quota = new.quota
    holder.send(holder.ask(0, back=40))
    assert holder.peek().level + holder.peek().outstanding <= 10


def test_a_newcomer_brings_its_quota(store: Store) -> None:
    Instance(store, name="old").spend(50)
    grant = Instance(store, Quota(SLOW, 200), name="new").report()
    assert (grant.quota, grant.level) == (None, 100)


def test_quotas_in_turn_mint_nothing(store: Store) -> None:
    instance = Instance(store)
    instance.spend(60)
    for burst in [200, 10, 50, 1000, 100]:
        instance.quota = Quota(SLOW, burst)
        assert instance.report().level == 0.4 * burst


# Grants that begin later


def test_a_caller_that_can_wait_is_granted_future_refill(store: Store) -> None:
    instance = Instance(store)
    instance.spend(100)
    grant = instance.take(1, max_wait=2 / SLOW)
    assert (grant.granted, grant.level) == (1, -1)
    assert grant.starts_in == pytest.approx(1 / SLOW, rel=0.01)
    assert grant.lease > 0
    assert grant.retry_after == 0.0


def test_a_wait_that_is_too_long_is_a_refusal(store: Store) -> None:
    instance = Instance(store)
    instance.spend(100)
    grant = instance.take(2, max_wait=1 / SLOW)
    assert (grant.granted, grant.starts_in, grant.level) == (0, 0.0, 0)
    assert grant.retry_after == pytest.approx(2 / SLOW, rel=0.01)


def test_promises_queue_up(store: Store) -> None:
    instances = [Instance(store, name=name) for name in "ab"]
    instances[0].spend(100)
    first, second = (instance.take(1, max_wait=100 / SLOW) for instance in instances)
    assert first.granted == second.granted == 1
    assert 0 < first.starts_in < second.starts_in
    assert second.level == -2


def test_a_promise_can_be_given_back(store: Store) -> None:
    instance = Instance(store)
    instance.spend(100)
    instance.take(1, max_wait=2 / SLOW)
    assert instance.give_back(1) == 1
    assert instance.peek().level == 0


def test_waiting_is_not_needed_where_tokens_are(store: Store) -> None:
    grant = Instance(store).take(10, max_wait=60.0)
    assert (grant.granted, grant.starts_in) == (10, 0.0)


# The promise


@pytest.mark.parametrize("seed", range(depth(2, 5)))
@pytest.mark.parametrize("quota", [HUNDRED, BOTH, Quota(20_000.0, 100)], ids=str)
def test_level_and_outstanding_never_exceed_the_burst(store: Store, quota: Quota, seed: int) -> None:
    """Any messages of two or three instances, even those that no honest instance sends."""
    chance = random.Random(seed)
    instances = [Instance(store, quota, name=name) for name in "abc"[: chance.choice([2, 3])]]
    for _ in range(120):
        instance = chance.choice(instances)
        if chance.random() < 0.3:
            instance.give_back(chance.randint(0, 60), held=chance.randint(0, 60), refund=chance.choice([0, 0, 1, 50]))
        else:
            instance.held = chance.randint(0, 60)
            need = chance.choice([0, 1, 10, 40])
            queued = need + chance.randint(0, 30)
            ask = instance.ask(need, queued=queued, want=queued + chance.randint(0, 100))
            max_wait = chance.choice([0.0, 0.0, 1.0, 1e5])
            grant = instance.send(ask._replace(back=chance.randint(0, 30), max_wait=max_wait))
            assert grant.granted == 0 or need <= grant.granted <= ask.want
        level = instance.peek()
        assert level.level + level.outstanding <= quota.largest_cost
        assert level.outstanding >= 0


@pytest.mark.parametrize("seed", range(depth(4, 10)))
def test_honest_instances_spend_at_most_the_burst(store: Store, seed: int) -> None:
    """And refunded tokens; there is no refill within this test's time."""
    chance = random.Random(seed)
    instances = [Instance(store, name=name) for name in "abc"]
    spent = refunded = 0
    for _ in range(100):
        instance = chance.choice(instances)
        match chance.choice(["take", "take", "spend", "spend", "give", "refund"]):
            case "take":
                instance.take(chance.choice([0, 1, 10]), want=chance.randint(10, 100))
            case "spend":
                used = chance.randint(0, instance.held)
                spent, instance.held = spent + used, instance.held - used
            case "give":
                instance.give_back(chance.randint(0, instance.held))
            case _:
                refunded += instance.give_back(0, refund=chance.randint(0, 3))
    assert spent <= 100 + refunded
    assert spent > 50, "or this test says little"


def test_tokens_of_a_vanished_instance_are_granted_again_after_its_lease(store: Store) -> None:
    quota = Quota(1000.0, 100)
    assert Instance(store, quota, name="gone", trip=0.2).take(100).granted == 100
    other = Instance(store, quota, name="other", trip=0.2)
    deadline = time.monotonic() + 30.0
    while other.take(50).granted < 50:
        assert time.monotonic() < deadline


def test_threads_together_get_exactly_the_burst(store: Store) -> None:
    start = threading.Barrier(8)
    spent = [0] * 8

    def work(i: int) -> None:
        instance = Instance(store, name=f"instance-{i}")
        start.wait()
        for _ in range(30):
            spent[i] += instance.take(1).granted
            instance.held = 0

    threads = [threading.Thread(target=work, args=[i]) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    level = store.peek(KEY, HUNDRED)
    assert sum(spent) + level.level == 100
    assert sum(spent) > 50


# Keys, and the end


_TEXTS = (
    "a",
    "löwe",
    "🦁",
    "{a}",
    "}{",
    "{}",
    "with space",
    "line\nfeed",
    "nul\0",
    "*",
    "a:b",
    "%s",
    "x" * 10_240,
    "é" * 5000,
)


def test_any_text_is_a_key(store: Store) -> None:
    for key in _TEXTS:
        instance = Instance(store, key=key)
        instance.spend(60)
        assert instance.peek().level == 40, ascii(key[:12])
        assert store.peek(key + "X", HUNDRED).level == 100, ascii(key[:12])


def test_long_keys_that_begin_and_end_alike_do_not_share_a_bucket(store: Store) -> None:
    Instance(store, key="x" * 5000 + "1" + "x" * 5000).spend(60)
    assert store.peek("x" * 5000 + "2" + "x" * 5000, HUNDRED).level == 100


def test_any_text_names_a_instance(store: Store) -> None:
    for i, name in enumerate(["a b", "{}", "h:x", "löwe", "%d", "level", "config"], start=1):
        instance = Instance(store, name=name)
        instance.take(1)
        assert instance.peek() == Level(level=100 - i, outstanding=i, active_instances=i)


def test_a_store_says_where_it_is(store: Store) -> None:
    assert store.address


def test_a_store_closes_twice(store: Store) -> None:
    store.take(KEY, HUNDRED, Instance(store).ask(1))
    store.close()
    store.close()

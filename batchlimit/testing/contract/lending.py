"""What a store lends, to whom, from when on, and by which of several quotas."""

from batchlimit.bucket.messages import Level
from batchlimit.quota.quota import Quota
from batchlimit.stores.protocols import Store
from batchlimit.testing.contract.check import HUNDRED, KEY, SLOW, AskingInstance, cases, near


def an_unused_bucket_is_full_and_credits_nothing(store: Store) -> None:
    assert store.peek(KEY, HUNDRED)[:3] == (100, 0, 0)
    assert AskingInstance(store).give_back(10, held=0) == 0
    assert store.peek(KEY, HUNDRED)[:3] == (100, 0, 0)


def a_first_ask_with_one_caller_waiting_gets_half_a_full_bucket(store: Store) -> None:
    grant = AskingInstance(store).take(1, want=100)
    assert (grant.granted, grant.kept, grant.level, grant.active_instances) == (50, 0, 50, 1)
    assert (grant.starts_in, grant.retry_after, grant.quota) == (0.0, 0.0, None)
    assert grant.version > 0
    assert grant.epoch > 0
    assert store.peek(KEY, HUNDRED)[:3] == (50, 50, 1)


def waiting_callers_get_the_whole_bucket(store: Store) -> None:
    assert AskingInstance(store).take(1, queued=100).granted == 100


def no_more_is_lent_than_is_wanted(store: Store) -> None:
    assert AskingInstance(store).take(1, queued=1, want=7).granted == 7


@cases("rate", [SLOW, 0.5, 3.0, 1000.0, 1e6])
def a_lease_lasts_most_of_a_refill_of_a_rich_bucket_and_two_fifths_of_a_poor_one(store: Store, rate: float) -> None:
    """A second and a half, or one, at most; a tenth at least, for the instance does not say how far away it is."""
    instance = AskingInstance(store, Quota(rate, 100), trip=0.0)
    assert near(instance.take(1, want=2).lease, max(0.1, min(1.5, 0.75 * 100 / rate)))
    poor = AskingInstance(store, Quota(rate, 100), key="poor", trip=0.0)
    poor.spend(60)
    assert near(poor.take(1, want=2).lease, max(0.1, min(1.0, 0.4 * 100 / rate)), rel=1e-3)


def a_lease_for_waiting_callers_is_short(store: Store) -> None:
    instance = AskingInstance(store, trip=0.0)
    assert near(instance.take(1).lease, 0.25)
    fast = AskingInstance(store, Quota(1000.0, 100), key="near", trip=0.001)
    assert near(fast.take(1).lease, 0.04)


@cases("quota", [HUNDRED & Quota(1000.0, 100), Quota(1000.0, 100) & HUNDRED])
def the_fastest_bandwidth_bounds_the_lease(store: Store, quota: Quota) -> None:
    assert near(AskingInstance(store, quota, trip=0.0).take(1).lease, 0.1)


def fifty_of_a_hundred_wanted_are_fifty(store: Store) -> None:
    instance = AskingInstance(store, trip=0.0)
    instance.spend(50)
    assert instance.take(1, queued=100).granted == 50


def less_than_the_need_is_not_lent_a_refusal_says_when_and_a_smaller_need_fits(store: Store) -> None:
    instance = AskingInstance(store, trip=0.0)
    instance.spend(90)
    before = instance.peek()
    grant = instance.take(20, queued=100)
    assert (grant.granted, grant.level) == (0, 10)
    assert near(grant.retry_after, 10 / SLOW, rel=0.01)
    assert instance.peek() == before
    assert instance.take(10).granted == 10


def a_prefetch_is_never_refused(store: Store) -> None:
    instance = AskingInstance(store, trip=0.0)
    instance.spend(100)
    grant = instance.take(0, want=50)
    assert (grant.granted, grant.retry_after) == (0, 0.0)


def one_instance_holds_at_most_half_the_burst_in_reserve(store: Store) -> None:
    instance = AskingInstance(store, trip=0.0)
    instance.take(1, want=100)
    grant = instance.take(0, want=100)
    assert (grant.granted, grant.kept) == (0, 50)


def a_second_instance_gets_its_part_of_half_the_rest(store: Store) -> None:
    AskingInstance(store, name="a").take(1, want=10)
    grant = AskingInstance(store, name="b").take(1, want=100)
    assert (grant.granted, grant.active_instances) == (22, 2)  # (100 - 10) / 2 / 2


def all_instances_together_hold_at_most_half_the_burst_in_reserve(store: Store) -> None:
    AskingInstance(store, name="a").take(1, want=50)
    grants = [AskingInstance(store, name=name).take(1, want=100).granted for name in "bc"]
    assert grants == [1, 1]  # for those who wait, there is enough


def an_instance_of_twice_the_weight_has_twice_the_share(store: Store) -> None:
    light, heavy = AskingInstance(store, name="light"), AskingInstance(store, name="heavy")
    light.take(1)
    grant = heavy.send(heavy.ask(1, want=100)._replace(weight=2))
    assert grant.granted == 33  # 99 * 2 / 3 / 2


def keys_do_not_share_a_bucket(store: Store) -> None:
    AskingInstance(store, key="a").spend(100)
    assert AskingInstance(store, key="b").take(100).granted == 100


def a_caller_that_can_wait_is_granted_future_refill(store: Store) -> None:
    instance = AskingInstance(store)
    instance.spend(100)
    grant = instance.take(1, max_wait=2 / SLOW)
    assert (grant.granted, grant.level) == (1, -1)
    assert near(grant.starts_in, 1 / SLOW, rel=0.01)
    assert grant.lease > 0
    assert grant.retry_after == 0.0


def a_wait_that_is_too_long_is_a_refusal(store: Store) -> None:
    instance = AskingInstance(store)
    instance.spend(100)
    grant = instance.take(2, max_wait=1 / SLOW)
    assert (grant.granted, grant.starts_in, grant.level) == (0, 0.0, 0)
    assert near(grant.retry_after, 2 / SLOW, rel=0.01)


def promises_queue_up(store: Store) -> None:
    instances = [AskingInstance(store, name=name) for name in "ab"]
    instances[0].spend(100)
    first, second = (instance.take(1, max_wait=100 / SLOW) for instance in instances)
    assert first.granted == second.granted == 1
    assert 0 < first.starts_in < second.starts_in
    assert second.level == -2


def a_promise_can_be_given_back(store: Store) -> None:
    instance = AskingInstance(store)
    instance.spend(100)
    instance.take(1, max_wait=2 / SLOW)
    assert instance.give_back(1) == 1
    assert instance.peek().level == 0


def waiting_is_not_needed_where_tokens_are(store: Store) -> None:
    grant = AskingInstance(store).take(10, max_wait=60.0)
    assert (grant.granted, grant.starts_in) == (10, 0.0)


BOTH = Quota(SLOW, 100, also=[Quota(SLOW, 60)])


def the_scarcest_bandwidth_decides(store: Store) -> None:
    assert AskingInstance(store, BOTH).take(1, queued=100).granted == 60


@cases("short_one_is", ["first", "last"])
def a_refusal_by_one_bandwidth_takes_nothing_from_another(store: Store, short_one_is: str) -> None:
    """Of the other, 40 are left; a refund, and a short one so large that it hides nothing any more, show them."""

    def quota(burst: int) -> Quota:
        short = Quota(SLOW, burst)
        return short & HUNDRED if short_one_is == "first" else HUNDRED & short

    instance = AskingInstance(store, quota(60))
    instance.spend(60)
    for _ in range(3):
        assert instance.take(10).granted == 0
    instance.quota = quota(600)
    assert instance.report().level == 0
    assert instance.give_back(0, refund=50) == 50
    instance.quota = quota(6000)
    assert instance.report().level == 40 + 50


def tokens_come_back_to_every_bandwidth(store: Store) -> None:
    instance = AskingInstance(store, BOTH)
    instance.take(60)
    assert instance.give_back(60) == 60
    assert instance.peek().level == 60
    instance.quota = HUNDRED
    assert instance.report().level == 100


def a_raised_limit_acts_at_once_and_used_tokens_stay_used(store: Store) -> None:
    instance = AskingInstance(store)
    instance.spend(50)
    before = instance.take(80)
    instance.quota = Quota(SLOW, 200)
    after = instance.take(80)
    assert (before.granted, after.granted, after.level) == (0, 80, 20)
    assert after.version > before.version
    assert after.quota is None


def a_lowered_limit_acts_at_once_and_used_tokens_stay_used(store: Store) -> None:
    instance = AskingInstance(store)
    instance.spend(50)
    instance.quota = Quota(SLOW, 10)
    assert instance.report().level == 5


def a_lowered_limit_leaves_room_for_leased_tokens(store: Store) -> None:
    instance = AskingInstance(store)
    instance.take(50)
    instance.quota = Quota(SLOW, 60)
    assert instance.report().level == 10
    assert instance.peek() == Level(level=10, outstanding=50, active_instances=1)


def an_older_caller_learns_the_newer_quota(store: Store) -> None:
    new, old = AskingInstance(store, name="new"), AskingInstance(store, name="old")
    old.age = 3600.0
    new.report()
    old.report()
    new.quota = Quota(SLOW, 200)
    changed = new.report()
    told = old.take(150)
    assert (told.quota, told.version, told.granted) == (new.quota, changed.version, 150)
    assert new.report().quota is None


def the_younger_quota_wins_in_any_order_of_asks(store: Store) -> None:
    """An old process that meets a key anew, or after a while, does not bring its own quota back."""
    young, old, another = (
        AskingInstance(store, Quota(SLOW, 200), name="young"),
        AskingInstance(store, name="old"),
        AskingInstance(store, name="z"),
    )
    young.age, old.age, another.age = 5.0, 3600.0, 1800.0
    old.report()
    assert young.report().quota is None
    assert (old.report().quota, another.report().quota) == (young.quota, young.quota)
    assert young.report().quota is None


@cases("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def the_quota_of_the_highest_rank_wins_in_any_order_of_asks(store: Store, order: tuple[int, ...]) -> None:
    """Rules of the store come before the revision of the code, and that before the age, which is the only one here."""
    instances = []
    for number, rank in enumerate([(0, 0), (0, 7), (0, 8), (3, 1)]):
        instance = AskingInstance(store, Quota(SLOW, 100 + number), name=f"{number}")
        instance.rank, instance.age = rank, float(number)
        instances.append(instance)
    for number in order:
        instances[number].report()
    highest = instances[-1]
    assert [each.report().quota for each in instances] == [highest.quota] * 3 + [None]


def instances_of_one_rank_obey_the_younger_quota(store: Store) -> None:
    old, young = AskingInstance(store, name="old"), AskingInstance(store, Quota(SLOW, 200), name="young")
    old.rank = young.rank = 5, 5
    old.age = 3600.0
    assert [each.report().quota for each in (old, young, old, young)] == [None, None, young.quota, None]


def an_instance_of_a_lower_rank_that_wants_the_same_quota_changes_nothing(store: Store) -> None:
    high, same, low = (AskingInstance(store, Quota(SLOW, burst), name=f"{i}") for i, burst in enumerate([20, 20, 100]))
    high.rank = 0, 2
    assert [each.report().quota for each in (high, same, low)] == [None, None, high.quota]


def tokens_that_come_back_after_the_limit_was_lowered_find_no_room(store: Store) -> None:
    holder, new = AskingInstance(store, name="holder"), AskingInstance(store, Quota(SLOW, 10), name="new")
    holder.take(50)
    new.report()
    holder.quota = new.quota
    holder.send(holder.ask(0, back=40))
    assert holder.peek().level + holder.peek().outstanding <= 10


def a_newcomer_brings_its_quota(store: Store) -> None:
    AskingInstance(store, name="old").spend(50)
    grant = AskingInstance(store, Quota(SLOW, 200), name="new").report()
    assert (grant.quota, grant.level) == (None, 100)


def quotas_in_turn_mint_nothing(store: Store) -> None:
    instance = AskingInstance(store)
    instance.spend(60)
    for burst in [200, 10, 50, 1000, 100]:
        instance.quota = Quota(SLOW, burst)
        assert instance.report().level == 0.4 * burst

"""What a store lends, to whom, and from when on."""

from batchlimit.quota.quota import Quota
from batchlimit.stores.protocols import Store
from batchlimit.testing.contract.instance import HUNDRED, KEY, SLOW, AskingInstance, cases, near


def an_unused_bucket_is_full(store: Store) -> None:
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


def less_than_the_need_is_not_lent_and_a_refusal_says_when(store: Store) -> None:
    instance = AskingInstance(store, trip=0.0)
    instance.spend(90)
    before = instance.peek()
    grant = instance.take(20, queued=100)
    assert (grant.granted, grant.level) == (0, 10)
    assert near(grant.retry_after, 10 / SLOW, rel=0.01)
    assert instance.peek() == before


def a_smaller_need_fits_after_a_refusal(store: Store) -> None:
    instance = AskingInstance(store, trip=0.0)
    instance.spend(90)
    instance.take(20)
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

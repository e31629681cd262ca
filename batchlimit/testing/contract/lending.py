"""What a store lends, to whom, from when on, and by which of several quotas."""

from itertools import permutations

from batchlimit.bucket.messages import Level
from batchlimit.quota.quota import Quota
from batchlimit.stores.protocols import Store
from batchlimit.testing.contract.check import HUNDRED, KEY, SLOW, AskingInstance, cases, near


def a_first_ask_with_one_caller_waiting_gets_half_a_full_bucket(store: Store) -> None:
    grant = AskingInstance(store).take(1, want=100)
    assert (grant.granted, grant.kept, grant.level, grant.active_instances) == (50, 0, 50, 1)
    assert (grant.starts_in, grant.retry_after, grant.quota) == (0.0, 0.0, None)
    assert grant.version > 0
    assert grant.epoch > 0
    assert store.peek(KEY, HUNDRED)[:3] == (50, 50, 1)


_LATER = 2 / SLOW
_ASKS: dict[
    str, tuple[float, ...]
] = {  # spent before, need, queued, want, longest wait: granted, level, starts in, retry
    "waiting_callers_get_the_whole_bucket": (0, 1, 100, 100, 0.0, 100, 0, 0.0, 0.0),
    "no_more_is_lent_than_is_wanted": (0, 1, 1, 7, 0.0, 7, 93, 0.0, 0.0),
    "as_much_as_there_is_of_what_is_wanted": (50, 1, 100, 100, 0.0, 50, 0, 0.0, 0.0),
    "less_than_the_need_is_not_lent": (90, 20, 100, 100, 0.0, 0, 10, 0.0, 10 / SLOW),
    "a_smaller_need_fits": (90, 10, 10, 10, 0.0, 10, 0, 0.0, 0.0),
    "a_prefetch_is_never_refused": (100, 0, 0, 50, 0.0, 0, 0, 0.0, 0.0),
    "a_caller_that_can_wait_is_granted_future_refill": (100, 1, 1, 1, _LATER, 1, -1, 1 / SLOW, 0.0),
    "a_wait_that_is_too_long_is_a_refusal": (100, 3, 3, 3, _LATER, 0, 0, 0.0, 3 / SLOW),
    "waiting_is_not_needed_where_tokens_are": (0, 10, 10, 10, 60.0, 10, 90, 0.0, 0.0),
}


@cases("about", _ASKS)
def what_is_granted(store: Store, about: str) -> None:
    """A refusal takes nothing, and says when to come back."""
    spent, need, queued, want, max_wait, granted, level, starts_in, retry_after = _ASKS[about]
    instance = AskingInstance(store)
    instance.spend(int(spent))
    before = instance.peek()
    grant = instance.take(int(need), queued=int(queued), want=int(want), max_wait=max_wait)
    assert (grant.granted, grant.level) == (granted, level)
    assert near(grant.starts_in, starts_in, rel=0.01)
    assert near(grant.retry_after, retry_after, rel=0.01)
    assert grant.lease > 0 if granted else instance.peek() == before


@cases("rate", [SLOW, 0.5, 3.0, 1000.0, 1e6])
def a_lease_lasts_most_of_a_refill_of_a_rich_bucket_and_two_fifths_of_a_poor_one(store: Store, rate: float) -> None:
    """A second and a half, or one, at most; a tenth at least, for the instance does not say how far away it is."""
    instance = AskingInstance(store, Quota(rate, 100), trip=0.0)
    assert near(instance.take(1, want=2).lease, max(0.1, min(1.5, 0.75 * 100 / rate)))
    poor = AskingInstance(store, Quota(rate, 100), key="poor", trip=0.0)
    poor.spend(60)
    assert near(poor.take(1, want=2).lease, max(0.1, min(1.0, 0.4 * 100 / rate)), rel=1e-3)


@cases("fast", [Quota(1000.0, 100), HUNDRED & Quota(1000.0, 100), Quota(1000.0, 100) & HUNDRED])
def a_lease_for_waiting_callers_is_short(store: Store, fast: Quota) -> None:
    """The fastest bandwidth bounds it. So does the time to the store, where an ask says how long that takes."""
    for number, (quota, trip, lease) in enumerate([(HUNDRED, 0.0, 0.25), (fast, 0.0, 0.1), (fast, 0.001, 0.04)]):
        assert near(AskingInstance(store, quota, key=f"{number}", trip=trip).take(1).lease, lease)


_IN_TURN = {  # instance, need, want, and what it is granted
    "one_holds_at_most_half_the_burst_in_reserve": [("a", 1, 100, 50), ("a", 0, 100, 0)],
    "a_second_one_gets_its_part_of_half_the_rest": [("a", 1, 10, 10), ("b", 1, 100, 22)],  # (100 - 10) / 2 / 2
    "all_together_hold_at_most_half": [("a", 1, 50, 50), ("b", 1, 100, 1), ("c", 1, 100, 1)],  # enough for who waits
}


@cases("about", _IN_TURN)
def what_instances_are_granted_in_turn(store: Store, about: str) -> None:
    instances = {name: AskingInstance(store, name=name) for name in "abc"}
    for name, need, want, granted in _IN_TURN[about]:
        assert instances[name].take(need, want=want).granted == granted


def an_instance_of_twice_the_weight_has_twice_the_share(store: Store) -> None:
    light, heavy = AskingInstance(store, name="light"), AskingInstance(store, name="heavy")
    light.take(1)
    grant = heavy.send(heavy.ask(1, want=100)._replace(weight=2))
    assert grant.granted == 33  # 99 * 2 / 3 / 2


def keys_do_not_share_a_bucket(store: Store) -> None:
    AskingInstance(store, key="a").spend(100)
    assert AskingInstance(store, key="b").take(100).granted == 100


def promises_queue_up(store: Store) -> None:
    instances = [AskingInstance(store, name=name) for name in "ab"]
    instances[0].spend(100)
    first, second = (instance.take(1, max_wait=100 / SLOW) for instance in instances)
    assert first.granted == second.granted == 1
    assert 0 < first.starts_in < second.starts_in
    assert second.level == -2


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


_RANKED = {
    "younger": [(0, 0, 3600.0), (0, 0, 1800.0), (0, 0, 5.0)],
    "younger of equal rank": [(5, 5, 3600.0), (5, 5, 0.0)],
    "of the store before that of the code, and both before age": [(0, 0, 0.0), (0, 7, 1.0), (0, 8, 2.0), (3, 1, 3.0)],
}
"""Rules, revision and age of instances, of which the last one wins."""


@cases("which", _RANKED)
def one_quota_wins_in_any_order_of_asks(store: Store, which: str) -> None:
    """An old process that meets a key anew, or after a while, does not bring its own quota back."""
    for order in permutations(range(len(_RANKED[which]))):
        instances = []
        for number, (*rank, age) in enumerate(_RANKED[which]):
            instance = AskingInstance(store, Quota(SLOW, 100 + number), key=f"{order}", name=f"{number}")
            instance.rank, instance.age = (int(rank[0]), int(rank[1])), age
            instances.append(instance)
        for number in order:
            instances[number].report()
        *others, winner = instances
        assert [each.report().quota for each in instances] == [winner.quota] * len(others) + [None]


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


def quotas_in_turn_act_at_once_and_mint_nothing(store: Store) -> None:
    instance = AskingInstance(store)
    instance.spend(60)
    for burst in [200, 10, 50, 1000, 100]:
        instance.quota = Quota(SLOW, burst)
        assert instance.report().level == 0.4 * burst

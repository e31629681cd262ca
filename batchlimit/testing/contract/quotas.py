"""Quotas of several bandwidths, and quotas that change."""

from batchlimit.bucket.messages import Level
from batchlimit.quota.quota import Quota
from batchlimit.stores.protocols import Store
from batchlimit.testing.contract.instance import HUNDRED, SLOW, AskingInstance, cases

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

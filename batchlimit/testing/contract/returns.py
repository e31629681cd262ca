"""Tokens that are spent, returned or refunded."""

from batchlimit.bucket.messages import Level
from batchlimit.stores.protocols import Store
from batchlimit.testing.contract.instance import HUNDRED, KEY, Instance


def tokens_not_reported_as_held_count_as_spent(store: Store) -> None:
    instance = Instance(store)
    instance.take(50)
    instance.held = 20
    grant = instance.report()
    assert (grant.granted, grant.kept) == (0, 20)
    assert instance.peek() == Level(level=50, outstanding=20, active_instances=1)


def an_ask_brings_unspent_tokens_back(store: Store) -> None:
    instance = Instance(store)
    instance.take(50)
    grant = instance.send(instance.ask(0, back=30))
    assert (grant.kept, grant.level) == (20, 80)
    assert instance.peek() == Level(level=80, outstanding=20, active_instances=1)


def an_instance_that_returns_tokens_keeps_the_others(store: Store) -> None:
    instance = Instance(store)
    instance.take(50)
    assert instance.give_back(20, held=25) == 20
    assert instance.peek() == Level(level=70, outstanding=25, active_instances=1)


def a_giver_that_keeps_nothing_leaves(store: Store) -> None:
    instance = Instance(store)
    instance.take(50)
    assert instance.give_back(50) == 50
    assert instance.peek() == Level(level=100, outstanding=0, active_instances=0)


def no_more_comes_back_than_was_held(store: Store) -> None:
    spender, instance = Instance(store, name="b"), Instance(store)
    spender.spend(40)
    instance.take(10)
    assert instance.give_back(1000, held=0) == 10
    assert instance.peek().level == 60


def no_more_comes_back_with_an_ask_than_was_held(store: Store) -> None:
    spender, instance = Instance(store, name="b"), Instance(store)
    spender.spend(40)
    instance.take(10)
    assert instance.send(instance.ask(0)._replace(held=0, back=1000)).level == 60


def an_instance_keeps_no_more_than_it_was_lent(store: Store) -> None:
    instance = Instance(store)
    instance.take(10)
    assert instance.send(instance.ask(0)._replace(held=1000)).kept == 10
    assert instance.peek() == Level(level=90, outstanding=10, active_instances=1)


def nothing_comes_back_from_an_instance_that_holds_nothing(store: Store) -> None:
    Instance(store, name="b").spend(40)
    stranger = Instance(store, name="stranger")
    assert stranger.give_back(10, held=0) == 0
    assert stranger.peek().level == 60


def an_unused_bucket_credits_nothing(store: Store) -> None:
    assert Instance(store).give_back(10, held=0) == 0
    assert store.peek(KEY, HUNDRED) == Level(level=100, outstanding=0, active_instances=0)


def a_refund_raises_the_level(store: Store) -> None:
    instance = Instance(store)
    instance.spend(80)
    assert instance.give_back(0, refund=30) == 30
    assert instance.peek().level == 50


def a_refund_leaves_room_for_leased_tokens(store: Store) -> None:
    instance = Instance(store)
    instance.take(100)
    assert instance.give_back(0, held=40, refund=1000) == 60
    assert instance.peek() == Level(level=60, outstanding=40, active_instances=1)


def a_refund_to_a_full_bucket_is_lost(store: Store) -> None:
    instance = Instance(store)
    instance.spend(20)
    assert instance.give_back(0, refund=50) in (19, 20)  # a fraction has flowed in, and only whole tokens count
    assert instance.peek().level == 100

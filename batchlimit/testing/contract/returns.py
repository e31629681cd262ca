"""Tokens that are spent, returned or refunded, by messages that come once, twice, or late."""

from batchlimit.bucket.messages import GiveBack, Level
from batchlimit.stores.protocols import Store
from batchlimit.testing.contract.instance import HUNDRED, KEY, AskingInstance, cases


def tokens_not_reported_as_held_count_as_spent(store: Store) -> None:
    instance = AskingInstance(store)
    instance.take(50)
    instance.held = 20
    grant = instance.report()
    assert (grant.granted, grant.kept) == (0, 20)
    assert instance.peek() == Level(level=50, outstanding=20, active_instances=1)


def an_ask_brings_unspent_tokens_back(store: Store) -> None:
    instance = AskingInstance(store)
    instance.take(50)
    grant = instance.send(instance.ask(0, back=30))
    assert (grant.kept, grant.level) == (20, 80)
    assert instance.peek() == Level(level=80, outstanding=20, active_instances=1)


def an_instance_that_returns_tokens_keeps_the_others(store: Store) -> None:
    instance = AskingInstance(store)
    instance.take(50)
    assert instance.give_back(20, held=25) == 20
    assert instance.peek() == Level(level=70, outstanding=25, active_instances=1)


def a_giver_that_keeps_nothing_leaves(store: Store) -> None:
    instance = AskingInstance(store)
    instance.take(50)
    assert instance.give_back(50) == 50
    assert instance.peek() == Level(level=100, outstanding=0, active_instances=0)


def no_more_comes_back_than_was_held(store: Store) -> None:
    spender, instance = AskingInstance(store, name="b"), AskingInstance(store)
    spender.spend(40)
    instance.take(10)
    assert instance.give_back(1000, held=0) == 10
    assert instance.peek().level == 60


def no_more_comes_back_with_an_ask_than_was_held(store: Store) -> None:
    spender, instance = AskingInstance(store, name="b"), AskingInstance(store)
    spender.spend(40)
    instance.take(10)
    assert instance.send(instance.ask(0)._replace(held=0, back=1000)).level == 60


def an_instance_keeps_no_more_than_it_was_lent(store: Store) -> None:
    instance = AskingInstance(store)
    instance.take(10)
    assert instance.send(instance.ask(0)._replace(held=1000)).kept == 10
    assert instance.peek() == Level(level=90, outstanding=10, active_instances=1)


def nothing_comes_back_from_an_instance_that_holds_nothing(store: Store) -> None:
    AskingInstance(store, name="b").spend(40)
    stranger = AskingInstance(store, name="stranger")
    assert stranger.give_back(10, held=0) == 0
    assert stranger.peek().level == 60


def an_unused_bucket_credits_nothing(store: Store) -> None:
    assert AskingInstance(store).give_back(10, held=0) == 0
    assert store.peek(KEY, HUNDRED)[:3] == (100, 0, 0)


def a_refund_raises_the_level(store: Store) -> None:
    instance = AskingInstance(store)
    instance.spend(80)
    assert instance.give_back(0, refund=30) == 30
    assert instance.peek().level == 50


def a_refund_leaves_room_for_leased_tokens(store: Store) -> None:
    instance = AskingInstance(store)
    instance.take(100)
    assert instance.give_back(0, held=40, refund=1000) == 60
    assert instance.peek() == Level(level=60, outstanding=40, active_instances=1)


def a_refund_to_a_full_bucket_is_lost(store: Store) -> None:
    instance = AskingInstance(store)
    instance.spend(20)
    assert instance.give_back(0, refund=50) in (19, 20)  # a fraction has flowed in, and only whole tokens count
    assert instance.peek().level == 100


def a_repeated_ask_gets_the_same_tokens_and_not_more(store: Store) -> None:
    instance = AskingInstance(store)
    instance.take(10)
    ask = instance.ask(1, queued=20)
    first, level = instance.send(ask), instance.peek()
    again = instance.send(ask)
    assert (first.granted, first.kept) == (again.granted, again.kept) == (20, 10)
    assert (first.starts_in, first.retry_after, first.level) == (again.starts_in, again.retry_after, again.level)
    assert instance.peek() == level == Level(level=70, outstanding=30, active_instances=1)


def a_refused_ask_may_be_repeated_and_then_fit(store: Store) -> None:
    instance, other = AskingInstance(store), AskingInstance(store, name="b")
    other.take(100)
    ask = instance.ask(10)
    assert instance.send(ask).granted == 0
    other.give_back(100)
    assert instance.send(ask).granted == 10


def an_ask_that_arrives_after_a_later_one_changes_nothing(store: Store) -> None:
    instance = AskingInstance(store)
    late, latest = instance.ask(5), instance.ask(5)
    instance.send(latest)
    before = instance.peek()
    assert store.take(KEY, HUNDRED, late).granted == 0
    assert instance.peek() == before


def a_give_back_that_arrives_after_a_later_ask_changes_nothing(store: Store) -> None:
    instance = AskingInstance(store)
    instance.take(50)
    late = GiveBack("a", 2, tokens=50)
    instance.seq = 2
    instance.take(1)
    before = instance.peek()
    assert store.give_back(KEY, HUNDRED, late) == 0
    assert instance.peek() == before


@cases("back", [GiveBack("a", 2, tokens=50), GiveBack("a", 2, tokens=20, held=30)])
def tokens_come_back_once(store: Store, back: GiveBack) -> None:
    instance = AskingInstance(store)
    instance.take(50)
    assert store.give_back(KEY, HUNDRED, back) == back.tokens
    before = instance.peek()
    assert store.give_back(KEY, HUNDRED, back) == 0
    assert instance.peek() == before
    assert before.level == 50 + back.tokens
    assert before.outstanding == back.held


@cases("held", [0, 10])
def a_refund_is_credited_once(store: Store, held: int) -> None:
    instance = AskingInstance(store)
    instance.take(100)
    back = GiveBack("a", 2, tokens=0, held=held, refund=30)
    assert store.give_back(KEY, HUNDRED, back) == 30
    assert store.give_back(KEY, HUNDRED, back) == 0
    assert instance.peek().level == 30


def a_refund_from_an_instance_that_holds_nothing_is_credited_once(store: Store) -> None:
    AskingInstance(store, name="b").spend(80)
    back = GiveBack("a", 1, tokens=0, refund=30)
    assert store.give_back(KEY, HUNDRED, back) == 30
    assert store.give_back(KEY, HUNDRED, back) == 0
    assert store.peek(KEY, HUNDRED).level == 50

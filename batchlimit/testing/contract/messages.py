"""Messages that come twice, or late."""

from batchlimit.bucket.messages import GiveBack, Level
from batchlimit.stores.protocols import Store
from batchlimit.testing.contract.instance import HUNDRED, KEY, Instance
from batchlimit.testing.contract.rule import cases


def a_repeated_ask_gets_the_same_tokens_and_not_more(store: Store) -> None:
    instance = Instance(store)
    instance.take(10)
    ask = instance.ask(1, queued=20)
    first, level = instance.send(ask), instance.peek()
    again = instance.send(ask)
    assert (first.granted, first.kept) == (again.granted, again.kept) == (20, 10)
    assert (first.starts_in, first.retry_after, first.level) == (again.starts_in, again.retry_after, again.level)
    assert instance.peek() == level == Level(level=70, outstanding=30, active_instances=1)


def a_refused_ask_may_be_repeated_and_then_fit(store: Store) -> None:
    instance, other = Instance(store), Instance(store, name="b")
    other.take(100)
    ask = instance.ask(10)
    assert instance.send(ask).granted == 0
    other.give_back(100)
    assert instance.send(ask).granted == 10


def an_ask_that_arrives_after_a_later_one_changes_nothing(store: Store) -> None:
    instance = Instance(store)
    late, latest = instance.ask(5), instance.ask(5)
    instance.send(latest)
    before = instance.peek()
    assert store.take(KEY, HUNDRED, late).granted == 0
    assert instance.peek() == before


def a_give_back_that_arrives_after_a_later_ask_changes_nothing(store: Store) -> None:
    instance = Instance(store)
    instance.take(50)
    late = GiveBack("a", 2, tokens=50)
    instance.seq = 2
    instance.take(1)
    before = instance.peek()
    assert store.give_back(KEY, HUNDRED, late) == 0
    assert instance.peek() == before


@cases("back", [GiveBack("a", 2, tokens=50), GiveBack("a", 2, tokens=20, held=30)])
def tokens_come_back_once(store: Store, back: GiveBack) -> None:
    instance = Instance(store)
    instance.take(50)
    assert store.give_back(KEY, HUNDRED, back) == back.tokens
    before = instance.peek()
    assert store.give_back(KEY, HUNDRED, back) == 0
    assert instance.peek() == before
    assert before.level == 50 + back.tokens
    assert before.outstanding == back.held


@cases("held", [0, 10])
def a_refund_is_credited_once(store: Store, held: int) -> None:
    instance = Instance(store)
    instance.take(100)
    back = GiveBack("a", 2, tokens=0, held=held, refund=30)
    assert store.give_back(KEY, HUNDRED, back) == 30
    assert store.give_back(KEY, HUNDRED, back) == 0
    assert instance.peek().level == 30


def a_refund_from_an_instance_that_holds_nothing_is_credited_once(store: Store) -> None:
    Instance(store, name="b").spend(80)
    back = GiveBack("a", 1, tokens=0, refund=30)
    assert store.give_back(KEY, HUNDRED, back) == 30
    assert store.give_back(KEY, HUNDRED, back) == 0
    assert store.peek(KEY, HUNDRED).level == 50

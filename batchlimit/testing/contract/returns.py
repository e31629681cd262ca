"""What comes back to a store by messages that come once, twice, or late; and what it promises for any key."""

import random
import threading
import time

from batchlimit.base.key import LONGEST_KEY
from batchlimit.bucket.messages import GiveBack, Level
from batchlimit.quota.quota import Quota
from batchlimit.stores.protocols import Store
from batchlimit.testing.contract.check import HUNDRED, KEY, MOST_SEEDS, SLOW, AskingInstance, cases
from batchlimit.testing.contract.lending import BOTH

_REPORTED = {  # spent by another instance, taken, still held, given back: kept, level
    "tokens_not_reported_as_held_count_as_spent": (0, 50, 20, 0, 20, 50),
    "an_ask_brings_unspent_tokens_back": (0, 50, 20, 30, 20, 80),
    "whoever_was_lent_tokens_keeps_no_more": (0, 10, 1000, 0, 10, 90),
    "no_more_comes_back_than_was_held": (40, 10, 0, 1000, 0, 60),
}


@cases("about", _REPORTED)
def what_an_ask_reports(store: Store, about: str) -> None:
    spent, taken, held, back, kept, level = _REPORTED[about]
    AskingInstance(store, name="b").spend(spent)
    instance = AskingInstance(store)
    instance.take(taken, queued=taken)
    grant = instance.send(instance.ask(0)._replace(held=held, back=back))
    assert (grant.granted, grant.kept, grant.level) == (0, kept, level)
    assert instance.peek()[:2] == (level, kept)


_GIVEN_BACK = {  # spent by another instance, taken, tokens, held, refund: credited, level
    "an_unused_bucket_is_full": (0, 0, 10, 0, 0, 0, 100),
    "whoever_returns_tokens_keeps_the_others": (0, 50, 20, 25, 0, 20, 70),
    "whoever_keeps_nothing_leaves": (0, 50, 50, 0, 0, 50, 100),
    "no_more_comes_back_than_was_held": (40, 10, 1000, 0, 0, 10, 60),
    "nothing_comes_back_from_whoever_holds_nothing": (40, 0, 10, 0, 0, 0, 60),
    "a_refund_raises_the_level": (0, 100, 0, 10, 30, 30, 30),
    "a_refund_comes_from_whoever_holds_nothing": (80, 0, 0, 0, 30, 30, 50),
    "a_refund_leaves_room_for_leased_tokens": (0, 100, 0, 40, 1000, 60, 60),
}


@cases("about", _GIVEN_BACK)
def what_comes_back_comes_back_once(store: Store, about: str) -> None:
    spent, taken, tokens, held, refund, credited, level = _GIVEN_BACK[about]
    instance = AskingInstance(store)
    if spent:
        AskingInstance(store, name="b").spend(spent)
    if taken:
        instance.take(taken, queued=taken)
    back = GiveBack("a", 2, tokens, held, refund)
    assert [store.give_back(KEY, HUNDRED, back) for _ in range(3)] == [credited, 0, 0]
    assert instance.peek() == Level(level, held, int(held > 0) + int(spent > 0))


def a_refund_to_a_full_bucket_is_lost(store: Store) -> None:
    instance = AskingInstance(store)
    instance.spend(50)
    assert instance.give_back(0, refund=80) in (49, 50)  # a fraction has flowed in, and only whole tokens count
    assert instance.peek().level == 100


def a_promise_can_be_given_back(store: Store) -> None:
    instance = AskingInstance(store)
    instance.spend(100)
    instance.take(1, max_wait=2 / SLOW)
    assert instance.give_back(1) == 1
    assert instance.peek().level == 0


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


@cases("seed", range(MOST_SEEDS))
@cases("quota", [HUNDRED, BOTH, Quota(20_000.0, 100)])
def level_and_outstanding_never_exceed_the_burst(store: Store, quota: Quota, seed: int) -> None:
    """Any messages of two or three instances, even those that no honest instance sends."""
    chance = random.Random(seed)
    instances = [AskingInstance(store, quota, name=name) for name in "abc"[: chance.choice([2, 3])]]
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


@cases("seed", range(MOST_SEEDS))
def honest_instances_spend_at_most_the_burst(store: Store, seed: int) -> None:
    """And refunded tokens; there is no refill within this test's time."""
    chance = random.Random(seed)
    instances = [AskingInstance(store, name=name) for name in "abc"]
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


def tokens_of_a_vanished_instance_are_granted_again_after_its_lease(store: Store) -> None:
    quota = Quota(1000.0, 100)
    assert AskingInstance(store, quota, name="gone", trip=0.2).take(100).granted == 100
    other = AskingInstance(store, quota, name="other", trip=0.2)
    deadline = time.monotonic() + 30.0
    while other.take(50).granted < 50:
        assert time.monotonic() < deadline


def threads_together_get_exactly_the_burst(store: Store) -> None:
    start = threading.Barrier(8)
    spent = [0] * 8

    def work(i: int) -> None:
        instance = AskingInstance(store, name=f"instance-{i}")
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


_TEXTS = (
    "a", "löwe", "🦁", "{a}", "}{", "{}", "with space", "line\nfeed", "nul\0", "*", "a:b", "%s",
    "x" * (LONGEST_KEY - 1), "é" * (LONGEST_KEY // 2 - 1),
)  # fmt: skip


def any_text_is_a_key(store: Store) -> None:
    for key in _TEXTS:
        instance = AskingInstance(store, key=key)
        instance.spend(60)
        assert instance.peek().level == 40, ascii(key[:12])
        assert store.peek(key + "X", HUNDRED).level == 100, ascii(key[:12])


def any_text_names_a_instance(store: Store) -> None:
    for i, name in enumerate(["a b", "{}", "h:x", "löwe", "%d", "level", "config"], start=1):
        instance = AskingInstance(store, name=name)
        instance.take(1)
        assert instance.peek() == Level(level=100 - i, outstanding=i, active_instances=i)


def a_store_says_where_it_is(store: Store) -> None:
    assert store.address


def a_store_closes_twice(store: Store) -> None:
    store.take(KEY, HUNDRED, AskingInstance(store).ask(1))
    store.close()
    store.close()

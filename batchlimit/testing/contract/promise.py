"""The promise: never more than the burst and what is refilled, for any key."""

import random
import threading
import time

from batchlimit.bucket.messages import Level
from batchlimit.quota.key import LONGEST_KEY
from batchlimit.quota.quota import Quota
from batchlimit.stores.protocols import Store
from batchlimit.testing.contract.instance import HUNDRED, KEY, MOST_SEEDS, AskingInstance, cases
from batchlimit.testing.contract.quotas import BOTH


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
    "x" * (LONGEST_KEY - 1),
    "é" * (LONGEST_KEY // 2 - 1),
)


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

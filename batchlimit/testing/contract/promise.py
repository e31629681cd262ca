"""The promise: never more than the burst and what is refilled."""

import random
import threading
import time

from batchlimit.quota.quota import Quota
from batchlimit.stores.protocols import Store
from batchlimit.testing.contract.instance import HUNDRED, KEY, Instance
from batchlimit.testing.contract.quotas import BOTH
from batchlimit.testing.contract.rule import MOST_SEEDS, cases


@cases("seed", range(MOST_SEEDS))
@cases("quota", [HUNDRED, BOTH, Quota(20_000.0, 100)])
def level_and_outstanding_never_exceed_the_burst(store: Store, quota: Quota, seed: int) -> None:
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


@cases("seed", range(MOST_SEEDS))
def honest_instances_spend_at_most_the_burst(store: Store, seed: int) -> None:
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


def tokens_of_a_vanished_instance_are_granted_again_after_its_lease(store: Store) -> None:
    quota = Quota(1000.0, 100)
    assert Instance(store, quota, name="gone", trip=0.2).take(100).granted == 100
    other = Instance(store, quota, name="other", trip=0.2)
    deadline = time.monotonic() + 30.0
    while other.take(50).granted < 50:
        assert time.monotonic() < deadline


def threads_together_get_exactly_the_burst(store: Store) -> None:
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

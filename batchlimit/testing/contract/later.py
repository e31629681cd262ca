"""Grants that begin later."""

from batchlimit.stores.protocols import Store
from batchlimit.testing.contract.instance import SLOW, Instance
from batchlimit.testing.contract.rule import near


def a_caller_that_can_wait_is_granted_future_refill(store: Store) -> None:
    instance = Instance(store)
    instance.spend(100)
    grant = instance.take(1, max_wait=2 / SLOW)
    assert (grant.granted, grant.level) == (1, -1)
    assert near(grant.starts_in, 1 / SLOW, rel=0.01)
    assert grant.lease > 0
    assert grant.retry_after == 0.0


def a_wait_that_is_too_long_is_a_refusal(store: Store) -> None:
    instance = Instance(store)
    instance.spend(100)
    grant = instance.take(2, max_wait=1 / SLOW)
    assert (grant.granted, grant.starts_in, grant.level) == (0, 0.0, 0)
    assert near(grant.retry_after, 2 / SLOW, rel=0.01)


def promises_queue_up(store: Store) -> None:
    instances = [Instance(store, name=name) for name in "ab"]
    instances[0].spend(100)
    first, second = (instance.take(1, max_wait=100 / SLOW) for instance in instances)
    assert first.granted == second.granted == 1
    assert 0 < first.starts_in < second.starts_in
    assert second.level == -2


def a_promise_can_be_given_back(store: Store) -> None:
    instance = Instance(store)
    instance.spend(100)
    instance.take(1, max_wait=2 / SLOW)
    assert instance.give_back(1) == 1
    assert instance.peek().level == 0


def waiting_is_not_needed_where_tokens_are(store: Store) -> None:
    grant = Instance(store).take(10, max_wait=60.0)
    assert (grant.granted, grant.starts_in) == (10, 0.0)

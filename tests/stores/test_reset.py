"""An operator fills buckets: what comes back, what stays with the instances that hold it, and what it says."""

import pytest

from batchlimit.bucket.messages import Ask, GiveBack
from batchlimit.quota.quota import Quota
from batchlimit.stores.protocols import Resettable, Store

HUNDRED = Quota(0.001, 100)
LONG = 2.0
"""A round trip (s) for which a lease lasts: no lease ends in these tests, however slow the machine is."""


@pytest.fixture
def full(store: Store) -> Resettable:
    """A store whose buckets an operator may fill."""
    if not isinstance(store, Resettable):
        pytest.skip("stores for tasks do not: AsyncAdmin uses one for threads")
    return store


def took(store: Store, tokens: int, instance: str = "a", seq: int = 1, held: int = 0, quota: Quota = HUNDRED) -> int:
    return store.take("key", quota, Ask(instance, seq, tokens, tokens, tokens, held, round_trip=LONG)).granted


def test_a_bucket_whose_tokens_were_spent_is_full_again(store: Store, full: Resettable) -> None:
    assert took(store, 100) == 100
    assert took(store, 1, seq=2) == 0, "all were spent, and that was reported"
    (before,) = full.reset("key", forget=False) or (-1.0,)
    assert before == pytest.approx(0.0, abs=1.0)
    assert store.peek("key", HUNDRED).level == 100
    assert took(store, 100, seq=3) == 100


def test_what_is_leased_counts_against_the_burst_still(store: Store, full: Resettable) -> None:
    took(store, 60)
    full.reset("key", forget=False)
    assert store.peek("key", HUNDRED)[:2] == (40, 60)
    store.give_back("key", HUNDRED, GiveBack("a", 2, tokens=60))
    assert store.peek("key", HUNDRED)[:2] == (100, 0)


def test_with_each_filling_at_most_one_burst_more_is_granted(store: Store, full: Resettable) -> None:
    granted = 0
    for seq in range(1, 6):
        granted += took(store, 100, seq=2 * seq) + took(store, 100, seq=2 * seq + 1)
        full.reset("key", forget=seq % 2 == 0)
    assert granted == 5 * 100, "the bucket was full, and filled four times since"


def test_a_bucket_that_is_not_there_is_not_made(store: Store, full: Resettable) -> None:
    assert full.reset("never used", forget=True) is None
    assert store.peek("never used", HUNDRED) == (100, 0, 0, (100.0,))


def test_a_cleared_bucket_obeys_the_next_asker_and_keeps_tokens_for_nobody(store: Store, full: Resettable) -> None:
    ten = Quota(0.001, 10)
    assert store.take("key", HUNDRED, Ask("a", 1, 5, 5, 5, age=0.0, revision=7)).granted == 5
    assert store.take("key", ten, Ask("b", 1, 0, 0, 0, age=50.0)).quota == HUNDRED, "one of a higher rank is heard"
    full.reset("key", forget=False)
    assert store.take("key", ten, Ask("b", 2, 0, 0, 0, age=50.0)).quota == HUNDRED
    full.reset("key", forget=True)
    assert store.take("key", ten, Ask("b", 3, 1, 1, 1, age=50.0)).quota is None


def test_every_bandwidth_is_filled(store: Store, full: Resettable) -> None:
    both = Quota(0.001, 100, [Quota(0.002, 40)])
    assert took(store, 40, quota=both) == 40
    assert took(store, 0, seq=2, quota=both) == 0
    levels = full.reset("key", forget=False) or ()
    assert [round(each) for each in levels] == [60, 0]
    assert store.peek("key", both).level == 40

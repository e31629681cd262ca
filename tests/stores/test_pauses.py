"""A pause holds at every store: nothing is leased or spent before its end, whatever comes back meanwhile."""

import pytest

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Spend
from batchlimit.quota.quota import Quota
from batchlimit.stores import Spender, Store
from tests.awaiting import pauses_of

HUNDRED = Quota(1.0, 100)
MINUTE = 60.0


def ask(store: Store, need: int = 1, seq: int = 1, *, quota: Quota = HUNDRED, **rest: float) -> Grant:
    return store.take("key", quota, Ask("a", seq, need, need, need, round_trip=2.0, **rest))  # type: ignore[arg-type]


def test_a_paused_key_lends_nothing_and_tells_when_the_first_token_is_there(store: Store) -> None:
    assert pauses_of(store).pause("key", HUNDRED, MINUTE, "a reason") == pytest.approx(MINUTE, abs=1e-5)
    grant = ask(store)
    assert (grant.granted, grant.active_instances) == (0, 1)
    assert MINUTE + 1.0 - 10.0 < grant.retry_after <= MINUTE + 1.0 + 1e-5
    assert store.give_back("key", HUNDRED, GiveBack("a", 2, 0, refund=5)) == 0


def test_a_paused_key_is_not_spent_of(store: Store) -> None:
    pauses_of(store).pause("key", HUNDRED, MINUTE, "")
    if isinstance(store, Spender):
        assert store.spend([[Spend("key", HUNDRED, 1)]]).groups == [None], "take tells of the pause"
    assert MINUTE + 1.0 - 10.0 < ask(store).retry_after <= MINUTE + 1.0 + 1e-5


def test_after_a_pause_is_lifted_tokens_come_at_the_rate(store: Store) -> None:
    pauses, fast = pauses_of(store), Quota(1000.0, 100)
    assert not pauses.resume("key"), "there is none"
    pauses.pause("key", fast, MINUTE, "")
    assert pauses.resume("key")
    assert not pauses.resume("key")
    assert ask(store, 100, quota=fast).retry_after <= 0.1 + 1e-5


def test_a_pause_goes_on_where_its_bucket_is_filled_and_ends_where_it_is_cleared(store: Store) -> None:
    if not hasattr(store, "reset"):
        pytest.skip("stores for tasks fill no buckets")
    pauses_of(store).pause("key", HUNDRED, MINUTE, "")
    store.reset("key", forget=False)
    assert ask(store).retry_after > MINUTE - 10.0
    store.reset("key", forget=True)
    assert ask(store, seq=2).granted == 1

"""What a limiter counted, by the entry of its quotas that a key went by."""

from dataclasses import replace

from tests.apis.blocking import Api
from tests.sync.stage import Clock, Stage


def test_a_limiter_counts_by_policy_whoever_decided(api: Api, clock: Clock, without_refresher: None) -> None:
    limiter = api(Stage(), {"user:*": "3/hour", "*": "1000/s burst 1000"}, clock=clock)
    for _ in range(5):
        limiter.try_acquire("user:ann")
    for number in range(300):
        limiter.try_acquire(f"once {number}")
    found = limiter.statistics().policies
    assert (found["user:*"].admitted, found["user:*"].refused) == (3, 2)
    assert (found["*"].admitted, found["*"].refused) == (300, 0)
    assert found["user:*"].low == found["user:*"].keys == 1
    limiter.close()
    closed = limiter.statistics().policies
    assert closed == {name: replace(each, keys=0, low=0) for name, each in found.items()}


def test_a_limiter_with_one_quota_counts_all_as_one(api: Api, clock: Clock) -> None:
    limiter = api(Stage(), "3/hour", clock=clock)
    assert [limiter.try_acquire("ann") for _ in range(5)].count(True) == 3
    found = limiter.statistics().policies
    assert list(found) == ["*"]
    assert (found["*"].admitted, found["*"].refused) == (3, 2)
    limiter.close()

"""What an instance grants itself while the store is away, as tables of (time, (needed, wanted), granted)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import BucketView, InstanceCount
from batchlimit.reservoir.fallback import Fallback, LocalBucket, OpenBucket
from tests.reservoir.world import SECOND, about, excess

HUNDRED = Quota(100.0, 100)


def standby(policy: FailurePolicy, instances: int) -> LocalBucket | None:
    """What stands in for a full bucket that told of so many instances."""
    count = InstanceCount()
    count.learn(instances, 0.0)
    view = BucketView("full", count)
    view.level, view._heard = 100, 0.0
    return Fallback(policy).bucket_now(HUNDRED, view, 0.0)


@pytest.mark.parametrize(
    ("policy", "told", "expected"),
    [
        (FailurePolicy.closed(), 4, None),
        (FailurePolicy.open(), 0, OpenBucket),
        (FailurePolicy.local(), 4, LocalBucket),
        (FailurePolicy.local(), 0, None),  # nothing to divide by: the whole limit on each instance is no limit
        (FailurePolicy.local(instances=4), 0, LocalBucket),
    ],
)
def test_a_policy_has_its_standby(policy: FailurePolicy, told: int, expected: type | None) -> None:
    found = standby(policy, told)
    assert found is None if expected is None else isinstance(found, expected)


@pytest.mark.parametrize(
    ("spent", "at", "tokens", "wait"),
    [
        (25, 0.0, 1, 0.04),
        (25, 0.03, 1, 0.01),
        (25, 0.0, 25, 1.0),
        (25, 0.5, 60, 0.5),
        (20, 0.0, 5, 0.0),
        (20, 1.0, 9, 0.0),
    ],
)
def test_it_says_when_tokens_are_there_or_when_it_is_full(spent: int, at: float, tokens: int, wait: float) -> None:
    found = LocalBucket(HUNDRED, 4, 100.0, 0.0)
    assert found.grant(spent, spent, 0.0) == (spent, 0.0)
    assert found.fits_in(tokens, at) == about(wait)
    later = LocalBucket(HUNDRED, 4, 100.0, 7.0)
    later.grant(spent, spent, 7.0)
    assert later.fits_in(tokens, 7.0 + at) == about(wait)


@pytest.mark.parametrize(("told", "least", "share"), [(4, 10, 10), (4, None, 25), (10, 4, 10), (0, 5, 20)])
def test_the_greater_number_of_hosts_divides(told: int, least: int | None, share: int) -> None:
    """The store tells of those only that asked at nearly the same time."""
    found = standby(FailurePolicy.local(least), told)
    assert found is not None
    assert found.level(0.0) == share


@pytest.mark.parametrize(
    ("known", "steps"),
    [
        # it begins with its share of what there was, and gets its share of the rate
        (100.0, [(0.0, (1, 1), (1, 0.0)), (0.0, (1, 90), (24, 0.0)), (0.0, (1, 1), (0, 0.04))]),
        (40.0, [(0.0, (1, 90), (10, 0.0)), (0.1, (1, 9), (2, 0.0)), (0.1, (1, 1), (0, 0.02))]),
        (-20.0, [(0.0, (1, 1), (0, 0.24)), (0.25, (1, 5), (1, 0.0))]),
        # who is expected is granted for, too
        (100.0, [(0.0, (1, 7), (7, 0.0))]),
        # it never holds more than its share of the burst
        (100.0, [(1000.0, (1, 180), (25, 0.0))]),
        # more than that is to be had when it is full, and repaid
        (100.0, [(0.0, (60, 60), (60, 0.0)), (1.0, (1, 1), (0, 0.44)), (1.45, (1, 1), (1, 0.0))]),
        (99.0, [(0.0, (60, 60), (0, 0.01)), (0.01, (60, 60), (60, 0.0))]),
    ],
)
def test_a_share_of_four(known: float, steps: list[tuple[float, tuple[int, int], tuple[int, float]]]) -> None:
    share = LocalBucket(HUNDRED, 4, known, 0.0)
    for now, wish, granted in steps:
        assert share.grant(*wish, now) == about(granted)


def test_a_share_below_one_token_still_gives_one_at_a_time() -> None:
    share = LocalBucket(Quota(1.0, 2), 4, 2.0, 0.0)
    assert share.grant(1, 1, 0.0) == (1, 0.0)
    tokens, wait = share.grant(1, 1, 0.0)
    assert (tokens, wait) == (0, about(4.0))
    assert share.grant(1, 1, 4.0) == (1, 0.0)


def test_all_bandwidths_have_to_agree() -> None:
    share = LocalBucket(Quota(10.0, 10) & Quota(1.0, 100), 2, 10.0, 0.0)
    assert share.grant(1, 9, 0.0) == (5, 0.0)
    assert share.grant(1, 9, 1.0) == (0, about(1.0))
    assert share.grant(1, 9, 2.0) == (1, 0.0)


def test_what_comes_back_has_room_up_to_the_share() -> None:
    share = LocalBucket(HUNDRED, 4, 100.0, 0.0)
    share.grant(1, 10, 0.0)
    share.put_back(4, 0.0)
    assert share.level(0.0) == 19
    share.put_back(100, 0.0)
    assert share.level(0.0) == 25


@pytest.mark.parametrize("rate", [0.1, 70.0, 1e6])
def test_what_is_waited_for_is_there_at_its_end(rate: float) -> None:
    """A clock that has run for weeks has fewer digits left."""
    now = 5e6 + 0.1
    share = LocalBucket(Quota(rate, 100), 3, 0.0, now)
    tokens, wait = share.grant(7, 7, now)
    assert tokens == 0
    assert share.grant(7, 7, now + wait) == (7, 0.0)


def test_a_look_changes_nothing() -> None:
    share = LocalBucket(HUNDRED, 4, 0.0, 0.0)
    assert [share.level(0.4), share.level(0.2), share.level(-1.0)] == [10, 5, 0]


def test_it_tells_when_forgetting_it_mints_nothing() -> None:
    share = LocalBucket(HUNDRED, 4, 100.0, 5.0)
    assert share.full_at() == 5.0
    share.grant(1, 5, 5.0)
    assert share.full_at() == about(5.2)
    assert OpenBucket(HUNDRED).full_at() == -math.inf


@given(
    st.integers(1, 7),
    st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 8), st.integers(0, 50), st.integers(0, 9)), max_size=40),
)
def test_hosts_together_admit_no_more_than_the_quota(instances: int, steps: list[tuple[float, int, int, int]]) -> None:
    """With costs up to a share of the burst; each of the instances, with the same luck."""
    quota = Quota(70.0, 70)
    share, now, granted = LocalBucket(quota, instances, 70.0, 0.0), 0.0, []
    for elapsed, first, more, back in steps:
        now += elapsed
        tokens, wait = share.grant(first, first + more, now)
        assert (tokens > 0) == (wait == 0.0)
        used = max(0, tokens - back)
        share.put_back(tokens - used, now)
        granted.append((round(now * SECOND), used * instances))
    assert excess(granted, 70.0, 70) < 0.01


def test_open_admits_all() -> None:
    fallback = OpenBucket(HUNDRED)
    for _ in range(1000):
        tokens, wait = fallback.grant(100, 5200, 0.0)
        assert tokens >= 5000
        assert wait == 0.0
    assert fallback.fits_in(10**6, 0.0) == 0.0

"""A pause is a debt of one bandwidth, paid when it ends: nothing is granted before, and the promise holds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.messages import Ask, GiveBack, Spend
from batchlimit.quota.quota import Quota

SECOND = 1_000_000
TEN = Quota(10.0, 10)

_counts = st.integers(0, 12)
_calls = st.one_of(
    st.tuples(st.just("take"), st.sampled_from("abc"), _counts, _counts, st.sampled_from((0.0, 0.5, 1.0))),
    st.tuples(st.just("give_back"), st.sampled_from("abc"), _counts, _counts),
    st.tuples(st.just("spend"), st.integers(1, 10)),
    st.tuples(st.just("change"), st.sampled_from((Quota(50.0, 10), Quota(1.0, 30, (Quota(20.0, 20),)), TEN))),
)


def play(bucket: Bucket, quota: Quota, call: str, arguments: tuple[Any, ...], seq: int, now: int) -> float | None:
    """Do it; when the tokens that were granted begin (us), if there are any."""
    if call == "take":
        who, need, held, max_wait = arguments
        grant = bucket.take(quota, Ask(who, seq, need, need, need + 3, held, back=held, max_wait=max_wait), now)
        return now + grant.starts_in * SECOND if grant.granted else None
    if call == "give_back":
        who, tokens, refund = arguments
        bucket.give_back(GiveBack(who, seq, tokens, 0, refund), now)
        return None
    if call == "spend":
        spend = Spend("key", quota, min(*arguments, quota.largest_cost))
        offer = bucket.offer(spend, now)
        return None if offer is None or not offer.is_charged else now + 0 * bucket.charge(spend, now).epoch
    (other,) = arguments
    bucket.take(other, Ask("d", seq, 0, 0, 0, revision=seq), now)
    return None


@given(st.lists(st.tuples(st.integers(0, SECOND), _calls), max_size=30), st.integers(1, 3 * SECOND))
def test_whatever_comes_nothing_begins_before_the_end(steps: list[tuple[int, Any]], lasting: int) -> None:
    bucket, quota, now = Bucket(TEN, 0), TEN, 0
    for seq, (elapsed, (call, *arguments)) in enumerate(steps[:10], start=1):
        now += elapsed
        play(bucket, quota, call, tuple(arguments), seq, now)
    ends = now + bucket.pause(lasting, now)
    for seq, (elapsed, (call, *arguments)) in enumerate(steps, start=100):
        now += elapsed
        begins = play(bucket, bucket._quota, call, tuple(arguments), seq, now)
        assert begins is None or begins >= ends - 1


def test_after_the_end_tokens_come_at_the_rate_and_not_as_a_burst() -> None:
    bucket = Bucket(TEN, 0)
    bucket.pause(5 * SECOND, 0)
    got = [
        sum(
            bucket.take(TEN, Ask("a", seq, 1, 1, 1), 5 * SECOND + tenth * SECOND // 10).granted
            for seq in (2 * tenth, 2 * tenth + 1)
        )
        for tenth in range(1, 21)
    ]
    assert got == [1] * 20


def test_what_a_refusal_tells_is_when_the_token_is_there() -> None:
    bucket = Bucket(TEN, 0)
    bucket.pause(5 * SECOND, 0)
    told = bucket.take(TEN, Ask("a", 1, 1, 1, 1), 2 * SECOND).retry_after
    assert told == pytest.approx(3.1, abs=1e-5)
    assert bucket.take(TEN, Ask("a", 2, 1, 1, 1), 2 * SECOND + round(told * SECOND)).granted == 1


def test_a_waiter_may_be_granted_a_token_of_just_after_the_end() -> None:
    bucket = Bucket(TEN, 0)
    bucket.pause(5 * SECOND, 0)
    early = bucket.take(TEN, Ask("a", 1, 1, 1, 1, max_wait=1.0), 3 * SECOND)
    assert early.granted == 0
    grant = bucket.take(TEN, Ask("a", 2, 1, 1, 1, max_wait=1.0), round(4.5 * SECOND))
    assert grant.granted == 1
    assert grant.starts_in == pytest.approx(0.6, abs=1e-5)


@pytest.mark.parametrize(("after", "starts_in"), [(0.0, 0.02), (0.2, 0.03), (0.4, 0.04), (0.6, 0.05), (0.8, 0.05)])
def test_instances_ask_often_just_after_a_pause_and_then_as_rarely_as_before(after: float, starts_in: float) -> None:
    thousand = Quota(1000.0, 1000)
    bucket, need = Bucket(thousand, 0), round(after * 1000) + 5
    bucket.pause(SECOND, 0)
    grant = bucket.take(thousand, Ask("a", 1, need, need, need, max_wait=1.0), round((1 + after) * SECOND))
    assert grant.granted == need
    assert grant.starts_in == pytest.approx(starts_in, abs=1e-5)


def test_the_longest_pause_ends_in_ten_years_and_the_bucket_outlasts_it() -> None:
    bucket = Bucket(TEN, 0)
    assert bucket.pause(10**18, 0) == 10 * 365 * 86_400 * SECOND
    assert bucket.expires_in() > 10 * 365 * 86_400 * SECOND


def test_a_lifted_pause_makes_no_tokens() -> None:
    """What was granted for later is owed still: as if it was leased, and had not flowed in."""
    bucket = Bucket(TEN, 0)
    assert bucket.take(TEN, Ask("a", 1, 10, 10, 10), 0).granted == 10
    later = bucket.take(TEN, Ask("a", 2, 5, 5, 5, max_wait=1.0), 0)
    assert later.granted == 5
    assert later.starts_in == pytest.approx(0.5, abs=1e-5)
    bucket.pause(60 * SECOND, 0)
    assert bucket.resume(1000)
    assert bucket.peek(1000).level <= -5


def test_a_bandwidth_that_a_quota_gets_in_a_pause_is_as_empty_as_the_one_that_is_paused() -> None:
    bucket, two = Bucket(TEN, 0), Quota(10.0, 10, (Quota(1.0, 100),))
    bucket.pause(5 * SECOND, 0)
    bucket.take(two, Ask("a", 1, 0, 0, 0, revision=1), 0)
    assert bucket.peek(0).levels[1] == 0.0


def test_another_quota_leaves_a_pause_as_long_as_it_was() -> None:
    twenty = Quota(20.0, 20)
    bucket = Bucket(TEN, 0)
    bucket.pause(5 * SECOND, 0)
    grants = [bucket.take(twenty, Ask("a", at, 1, 1, 1), at * SECOND) for at in range(1, 7)]
    assert [each.granted for each in grants] == [0, 0, 0, 0, 0, 1]
    assert bucket.take(twenty, Ask("a", 7, 15, 15, 15), 8 * SECOND).granted == 15


@pytest.mark.parametrize(
    ("shows", "granted"),
    [
        pytest.param([4.0, 14.9, 15.0, 15.2], [0, 0, 0, 1], id="back: until the end comes by that clock"),
        pytest.param([72.0, 72.0], [10, 0], id="ahead: the pause is over, with no more than the burst"),
    ],
)
def test_a_pause_is_of_the_clock_that_the_server_shows(shows: list[float], granted: list[int]) -> None:
    """It was begun at 10 s, for 5 s, and at 12 s the clock was set."""
    bucket = Bucket(TEN, 10 * SECOND)
    bucket.pause(5 * SECOND, 10 * SECOND)
    assert bucket.take(TEN, Ask("a", 1, 1, 1, 1), 12 * SECOND).granted == 0
    need = max(granted)
    asks = [(Ask("a", seq, need, need, need), round(at * SECOND)) for seq, at in enumerate(shows, start=2)]
    assert [bucket.take(TEN, ask, now).granted for ask, now in asks] == granted

"""What each method says and does, of either API, one caller at a time."""

import inspect
import random
from dataclasses import replace
from typing import Any

import pytest

from batchlimit import Decision, Quota, RateLimited, RateLimiter, Statistics
from batchlimit.base.histogram import BOUNDS
from batchlimit.batching import FixedBatch, GrowingBatch
from batchlimit.reservoir.sizing import Usage
from batchlimit.stores import MemoryStore
from batchlimit.testing import frozen_limits
from tests.apis.blocking import Api
from tests.depth import depth
from tests.sync.stage import KEY, Clock, Stage, away, quiet, start, until
from tests.timelines import FOLLOWED_BY_REFUSALS

SLOW = 0.001
HUNDRED = Quota(SLOW, 100)


@pytest.fixture
def limiter(api: Api, stage: Stage, clock: Clock, without_refresher: None) -> Any:
    """A hundred tokens, in batches of ten, and no refill worth speaking of."""
    return api(stage, HUNDRED, sizer=FixedBatch(10), clock=clock)


def test_a_burst_is_admitted_and_not_one_token_more(limiter: Any) -> None:
    assert [limiter.try_acquire(KEY) for _ in range(101)] == [True] * 100 + [False]


def test_time_brings_tokens_and_a_refusal_says_when(api: Api, clock: Clock, without_refresher: None) -> None:
    """After the last tokens as well: it is the bucket's own time."""
    limiter = api(MemoryStore(clock), "10/s", clock=clock)
    for at, cost, allowed, retry_after in FOLLOWED_BY_REFUSALS:
        clock.now = 1000.0 + at + 0.0001
        decision = limiter.decide(KEY, cost)
        assert (at, decision.allowed) == (at, allowed)
        assert decision.retry_after == pytest.approx(retry_after, abs=0.001)


def test_acquire_returns_none_or_raises(limiter: Any) -> None:
    limiter.acquire(KEY)
    limiter.acquire(KEY, 99, timeout=0)
    with pytest.raises(RateLimited) as caught:
        limiter.acquire(KEY, 5, timeout=0)
    assert caught.value.key == KEY
    assert caught.value.retry_after == pytest.approx(5 / SLOW)
    assert str(caught.value) == "'tenant:42' is over its quota; retry after 5000.000 s"


def test_a_decision_says_who_decided_and_what_is_left(limiter: Any) -> None:
    first, second = limiter.decide(KEY), limiter.decide(KEY)
    assert first == Decision(True, 100, remaining=99, retry_after=0.0, reset_after=1 / SLOW, source="store")
    assert second == Decision(True, 100, remaining=98, retry_after=0.0, reset_after=2 / SLOW, source="local")
    limiter.acquire(KEY, 98)
    dry, still = limiter.decide(KEY), limiter.decide(KEY)
    assert (dry.source, still.source) == ("store", "denied")
    for each in (dry, still):
        assert (each.allowed, each.limit, each.remaining) == (False, 100, 0)
        assert each.retry_after == pytest.approx(1 / SLOW)
        assert each.reset_after == pytest.approx(100 / SLOW)


def test_the_limit_of_several_bandwidths_is_the_smallest_burst(api: Api, clock: Clock, without_refresher: None) -> None:
    limiter = api(MemoryStore(clock), "0.001/s burst 100; 0.001/s burst 30", clock=clock)
    assert limiter.decide(KEY).limit == 30
    limiter.acquire(KEY, 29)
    assert not limiter.try_acquire(KEY)


@pytest.mark.parametrize(
    ("quota", "limits"),
    [
        ("0.001/s burst 7", {"a": 7, "b:1": 7}),
        (Quota(SLOW, 7), {"a": 7, "b:1": 7}),
        ({"a": "1/s burst 1", "*": Quota(SLOW, 9)}, {"a": 1, "ab": 9, "A": 9}),
        ({"*": "9/s", "b:*": "2/s", "b:?": "3/s", "b:1": "4/s"}, {"b:1": 4, "b:2": 2, "b:10": 2, "c": 9}),
        ({"[ab]": "5/s", "*": "6/s"}, {"a": 5, "b": 5, "c": 6}),
        (lambda key: f"{len(key)}/s", {"a": 1, "abc": 3}),
        (lambda key: Quota(SLOW, len(key)), {"a": 1, "abc": 3}),
    ],
)
def test_each_key_has_its_quota(api: Api, clock: Clock, without_refresher: None, quota: Any, limits: Any) -> None:
    limiter = api(MemoryStore(clock), quota, clock=clock)
    assert {key: limiter.peek(key).limit for key in limits} == limits
    assert {key: limiter.decide(key).limit for key in limits} == limits


def test_a_look_spends_nothing_and_asks_for_nothing(limiter: Any, stage: Stage) -> None:
    assert limiter.peek(KEY) == Decision(True, 100, 100, retry_after=0.0, reset_after=0.0, source="store")
    assert stage.asks == []
    limiter.acquire(KEY, 15)
    assert limiter.peek(KEY) == limiter.peek(KEY)
    assert limiter.peek(KEY).remaining == 85


def test_a_look_sees_what_another_instance_spent(api: Api, limiter: Any, stage: Stage, clock: Clock) -> None:
    with api(stage.inner, HUNDRED, clock=clock) as other:
        other.acquire(KEY, 40)
    assert limiter.peek(KEY).remaining == 60


def test_a_refund_within_its_lease_costs_no_call(limiter: Any, stage: Stage) -> None:
    limiter.acquire(KEY)
    before = limiter.statistics().held
    limiter.refund(KEY)
    assert limiter.statistics().held == before + 1
    assert (len(stage.asks), stage.backs) == (1, [])


def test_a_refund_after_its_lease_goes_to_the_store(limiter: Any, stage: Stage, clock: Clock) -> None:
    limiter.acquire(KEY, 100)
    clock.now += 2.0
    limiter.refund(KEY, 30)
    assert stage.peek(KEY, HUNDRED).level == 30


def test_a_refund_never_fills_a_bucket_beyond_its_burst(limiter: Any, stage: Stage, clock: Clock) -> None:
    limiter.acquire(KEY, 10)
    clock.now += 2.0
    for _ in range(3):
        limiter.refund(KEY, 100)
    level = stage.peek(KEY, HUNDRED)
    assert level.level + level.outstanding <= 100
    assert sum(limiter.try_acquire(KEY) for _ in range(300)) <= 100


def test_statistics_say_what_was_done(limiter: Any) -> None:
    assert limiter.statistics() == Statistics(keys=0, admitted=0, refused=0, calls=0, held=0, waiting=0)
    limiter.acquire("a", 5)
    limiter.try_acquire("b")
    limiter.acquire("c", 100)
    assert not limiter.try_acquire("c", 7)
    assert limiter.statistics() == Statistics(keys=3, admitted=106, refused=7, calls=4, held=5 + 9, waiting=0)


# `100 within 1m` holds over a fleet in every window, wherever it begins
_INSTANCES = 8


@pytest.mark.usefixtures("without_refresher")
@pytest.mark.parametrize("seed", range(depth(3, 20)))
@pytest.mark.parametrize("text", ["100 within 1m", "100 within 1m burst 50", "5 within 1m", "400 within 1s burst 200"])
def test_no_window_holds_more(text: str, seed: int) -> None:
    """After a lull calls come alone and in crowds, to one instance and another; some ask for several tokens."""
    chance, clock, quota = random.Random(seed), Clock(), Quota.parse(text)
    n, per = int(text.split()[0]), 1.0 if "1s" in text else 60.0
    store = MemoryStore(clock)
    fleet = [RateLimiter(store, quota, clock=clock) for _ in range(_INSTANCES)]
    admitted: list[tuple[float, int]] = []
    for _ in range(2):
        clock.pass_by(2 * quota.burst / quota.rate)
        for _ in range(24 * n):
            clock.pass_by(chance.choice([0.0, 0.0, 0.4 * per / n * chance.random()]))
            cost = chance.choice([1, 1, 1, min(3, quota.burst)])
            if chance.choice(fleet).try_acquire("key", cost):
                admitted.append((clock(), cost))
    most = begin = total = 0
    for at, cost in admitted:
        total += cost
        while admitted[begin][0] < at - per:
            total -= admitted[begin][1]
            begin += 1
        most = max(most, total)
    assert most <= n
    assert most >= 0.8 * n, "and it was put to the test"
    for limiter in fleet:
        limiter.close()


# A sizer of the user's own that fails: its caller learns of it, and the key goes on
class Spoilt:
    """A sizer that wants nothing more than callers wait for; or raises, or returns, whatever the test says."""

    def __init__(self, answer: Any = 0) -> None:
        self.answer = answer

    def want(self, usage: Usage) -> int:
        if isinstance(self.answer, BaseException):
            raise self.answer
        answer: int = self.answer
        return answer


WRONG = [KeyError("no such tenant"), "many", None, float("nan")]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_sizer_that_fails_fails_its_caller_alone_and_the_key_goes_on(api: Api, wrong: Any, clock: Clock) -> None:
    stage, sizer = Stage(MemoryStore(clock)), Spoilt(wrong)
    with api(stage, "0.001/s burst 10", sizer=sizer, clock=clock, deadline=30.0) as limiter:
        for call in (limiter.try_acquire, limiter.acquire, limiter.decide, lambda key: limiter.acquire_all({key: 1})):
            with pytest.raises((KeyError, TypeError)):
                call(KEY)
        assert (stage.asks, limiter.statistics().waiting) == ([], 0)
        sizer.answer = 0
        assert sum(limiter.try_acquire(KEY) for _ in range(20)) == 10
        assert limiter.statistics().available


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_each_who_waits_hears_of_a_sizer_that_fails_and_none_waits_for_ever(api: Api, wrong: Any, clock: Clock) -> None:
    sizer = Spoilt()
    with api(Stage(MemoryStore(clock)), "1/s burst 10", sizer=sizer, clock=clock, deadline=30.0) as limiter:
        limiter.acquire(KEY, 10)
        waiting = [start(lambda: limiter.acquire(KEY, 5)) for _ in range(3)]
        until(lambda: limiter.statistics().waiting == 3 and quiet(limiter))
        sizer.answer = wrong
        limiter.refund(KEY, 4)  # not enough for the first of them, who asks for the rest
        for each in waiting:
            assert isinstance(each.exception(100.0), KeyError | TypeError)
        assert limiter.statistics().waiting == 0
        sizer.answer = 0
        assert limiter.try_acquire(KEY, 4)


def test_a_growing_batch_of_a_refused_key_fails_no_call(api: Api, clock: Clock, without_refresher: None) -> None:
    """After 1,750 refusals the batch was infinite, and every later call an OverflowError."""
    stage = Stage(MemoryStore(clock))
    with api(stage, "0.001/s burst 10", sizer=GrowingBatch(), clock=clock, deadline=30.0) as limiter:
        limiter.acquire(KEY, 10)
        for _ in range(2000):
            clock.pass_by(0.6)  # so that each of them asks
            assert limiter.try_acquire(KEY, 9) is False
        assert len(stage.asks) == 2001
        clock.pass_by(9000.0)
        assert limiter.try_acquire(KEY, 9)


# A limiter as a decorator of functions, and as a context manager
TEN = Quota(0.001, 10)


@pytest.fixture
def ten(api: Api, stage: Stage, clock: Clock, without_refresher: None) -> Any:
    """Ten tokens a key."""
    return api(stage, TEN, sizer=FixedBatch(1), clock=clock)


def test_each_call_is_charged_to_its_own_key(ten: Any) -> None:
    @ten.limit("search:{user}", cost=3)
    def search(user: str, *, page: int = 1) -> tuple[str, int]:
        return user, page

    assert search("ann") == ("ann", 1)
    assert search(user="ann", page=2) == ("ann", 2)
    assert search("bob") == ("bob", 1)
    assert [ten.peek(f"search:{user}").remaining for user in ("ann", "bob")] == [4, 7]


def test_the_function_is_itself_to_whoever_looks(ten: Any) -> None:
    @ten.limit("k")
    def search(user: str, page: int = 1) -> str:
        """Find."""
        return user

    assert (search.__name__, search.__doc__) == ("search", "Find.")
    assert list(inspect.signature(search).parameters) == ["user", "page"]


def test_a_refused_call_does_not_happen(ten: Any) -> None:
    happened = []

    @ten.limit("k", cost=lambda n: n, timeout=0)
    def work(n: int) -> None:
        happened.append(n)

    work(7)
    with pytest.raises(RateLimited) as caught:
        work(4)
    work(3)
    assert happened == [7, 3]
    assert caught.value.key == "k"


def test_a_call_that_fails_was_charged_all_the_same(ten: Any) -> None:
    @ten.limit("k")
    def work() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        work()
    assert ten.peek("k").remaining == 9


def test_wrong_arguments_are_not_charged(ten: Any) -> None:
    @ten.limit("{user}")
    def work(user: str) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'user'"):
        work()
    assert ten.statistics().keys == 0


def test_a_method_may_be_limited_by_its_object(ten: Any) -> None:
    class Service:
        def __init__(self, tenant: str) -> None:
            self.tenant = tenant

        @ten.limit("{self.tenant}")
        def call(self) -> str:
            return self.tenant

    assert Service("t1").call() == "t1"
    assert ten.peek("t1").remaining == 9


def test_a_block_is_charged_each_time_it_is_entered(ten: Any) -> None:
    limit = ten.limit("k", cost=4, timeout=0)
    for _ in range(2):
        with limit:
            pass
    with pytest.raises(RateLimited), limit:
        pytest.fail("it was entered")
    with pytest.raises(LookupError), ten.limit("another"):
        raise LookupError


@pytest.mark.parametrize(
    ("key", "options", "error"),
    [
        *(("{a}", {}, ValueError), ("{}", {}, ValueError), (5, {}, TypeError), ("k", {"cost": "x"}, TypeError)),
        *(("k", {"cost": 1.5}, TypeError), ("k", {"timeout": -1}, ValueError)),
    ],
)
def test_what_makes_no_sense_is_said_before_any_call(ten: Any, key: Any, options: Any, error: Any) -> None:
    with pytest.raises(error), ten.limit(key, **options):
        pytest.fail("it was entered")


# What a limiter counted, by the entry of its quotas that a key went by
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


def test_how_long_callers_wait_is_counted_by_policy(api: Api) -> None:
    limiter = api(Stage(), {"user:*": "1/s", "*": "1000/s"})
    with frozen_limits():
        assert limiter.try_acquire("user:ann")
        for _ in range(2):
            limiter.acquire("user:ann")
        assert not limiter.try_acquire("user:ann")
        limiter.try_acquire("other")
        found = limiter.statistics().policies
    waits = dict(zip(BOUNDS, found["user:*"].waits.up_to, strict=False))
    assert (waits[0.5], waits[2.5]) == (0, 2), "try_acquire waits for nothing"
    assert found["*"].waits.total == 0


def test_a_caller_that_cannot_be_served_in_time_has_not_waited_long(api: Api) -> None:
    limiter = api(Stage(), "1/s")
    with frozen_limits():
        limiter.acquire(KEY)
        with pytest.raises(RateLimited):
            limiter.acquire(KEY, timeout=0.5)
        found = limiter.statistics().policies["*"]
    assert (found.timed_out, found.by_store) == (1, 0)
    assert found.waits.up_to[0] == found.waits.total


def test_how_long_the_store_takes_is_counted_answer_or_not(api: Api, clock: Clock, without_refresher: None) -> None:
    stage = Stage()
    limiter = api(stage, "1000/s", clock=clock)
    for number in range(3):
        limiter.try_acquire(f"key {number}")
    assert limiter.statistics().durations.total == 3
    stage.before = stage.before_probe = away
    for number in range(10):
        limiter.try_acquire(f"key {number}")
    seen = limiter.statistics()
    assert (seen.available, seen.durations.total) == (False, 6), "while the circuit is open nothing is asked"


def test_a_call_that_waits_for_the_store_is_counted_as_a_call_that_waits(api: Api, clock: Clock) -> None:
    store, seen = MemoryStore(clock), list[Statistics]()
    spend = store.spend

    def seeing(*args: Any, **options: Any) -> Any:
        seen.append(here.statistics())
        return spend(*args, **options)

    store.spend = seeing  # type: ignore[method-assign]
    with api(store, "5/s", clock=clock) as here:
        assert here.try_acquire("ann")
        after = here.statistics()
    assert [(each.calls, each.waiting, each.admitted) for each in [*seen, after]] == [(1, 1, 0), (1, 0, 1)]


def test_of_what_decide_refuses_the_store_has_the_first_alone(api: Api, clock: Clock, without_refresher: None) -> None:
    with api(MemoryStore(clock), "2/hour", clock=clock) as limiter:
        told = [limiter.decide("ann").source for _ in range(6)]
        assert told == ["store"] * 3 + ["denied"] * 3
        found = limiter.statistics().policies["*"]
        assert (found.refused, found.by_store) == (4, 1)

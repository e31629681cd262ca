"""A call for a key that is not in use is settled by one ask, and by the rules of its reservoir if that is not all."""

import pytest

from batchlimit import LimiterClosed, Quota, RateLimiter, StoreUnavailable
from batchlimit.batching import FixedBatch
from tests.sync.stage import DEADLINE, KEY, Clock, Gate, Stage, start, until

TEN = Quota(0.001, 10)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def limiter_of(stage: Stage) -> RateLimiter:
    return RateLimiter(stage, TEN, sizer=FixedBatch(1), clock=Clock())


def test_it_leaves_nothing_in_memory_but_a_snapshot(stage: Stage) -> None:
    with limiter_of(stage) as limiter:
        assert [limiter.try_acquire(f"key-{n}") for n in range(5)] == [True] * 5
        assert limiter._entries == {}
        seen = limiter.statistics()
    assert (seen.keys, seen.admitted, seen.calls, seen.held) == (5, 5, 5, 0)
    assert stage.backs == []


def test_its_decision_says_what_is_left(stage: Stage) -> None:
    with limiter_of(stage) as limiter:
        decision = limiter.decide(KEY)
    assert (decision.allowed, decision.limit, decision.remaining, decision.source) == (True, 10, 9, "store")


def test_who_comes_for_the_same_key_meanwhile_waits_for_its_answer(stage: Stage) -> None:
    with limiter_of(stage) as limiter:
        gate = stage.before = Gate()
        first = start(lambda: limiter.try_acquire(KEY))
        gate.await_someone()
        assert limiter.statistics().waiting == 1
        second = start(lambda: limiter.try_acquire(KEY))
        until(lambda: limiter.statistics().waiting == 2)
        assert len(stage.asks) == 1
        gate.open()
        assert first.result(DEADLINE)
        assert second.result(DEADLINE)
        assert limiter.statistics().admitted == 2
    assert [ask.seq for ask in stage.asks] == sorted({ask.seq for ask in stage.asks})


def test_when_the_store_does_not_answer_the_next_ask_repeats_its_number(stage: Stage) -> None:
    def lose() -> None:
        stage.after = lambda: None
        raise StoreUnavailable("the answer was lost")

    with limiter_of(stage) as limiter:
        stage.after = lose
        with pytest.raises(StoreUnavailable):
            limiter.decide(KEY)
        assert limiter.try_acquire(KEY)
        assert stage.asks[0].seq == stage.asks[1].seq
        assert limiter.statistics().admitted == 1


def test_a_limiter_that_is_closed_meanwhile_fails_its_caller(stage: Stage) -> None:
    limiter = limiter_of(stage)
    gate = stage.before = Gate()
    caller = start(lambda: limiter.acquire(KEY))
    gate.await_someone()
    ends = start(limiter.close)
    until(lambda: limiter._registry.closed)
    until(lambda: not limiter._registry._keyspace.singles)
    gate.open()
    with pytest.raises(LimiterClosed):
        caller.result(DEADLINE)
    ends.result(DEADLINE)


def test_what_is_settled_for_less_than_its_estimate_stays_here(stage: Stage) -> None:
    with limiter_of(stage) as limiter:
        limiter.reserve(KEY, 4).settle(1)
        assert limiter.statistics().held == 3
        assert stage.backs == []

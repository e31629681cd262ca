"""A sizer of the user's own that fails: its caller learns of it, and the key goes on."""

from typing import Any

import pytest

from batchlimit.batching import GrowingBatch
from batchlimit.reservoir.sizing import Usage
from batchlimit.stores import MemoryStore
from tests.apis.blocking import Api
from tests.sync.stage import KEY, Clock, Stage, quiet, start, until


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


def test_a_key_that_is_refused_for_ever_with_a_growing_batch_is_refused_and_never_fails(
    api: Api, clock: Clock, without_refresher: None
) -> None:
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

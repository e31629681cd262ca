"""The end of a limiter: whatever goes wrong at one key, all that can be done for the others is done."""

import logging
from typing import Any

import pytest

from batchlimit.errors import LimiterClosed
from batchlimit.reservoir.lifecycle import Lifecycle
from tests.apis.blocking import Api
from tests.reservoir.world import Moody
from tests.sync.stage import Clock, Stage

KEYS = [f"key-{n}" for n in range(200)]


class Greedy(Moody):
    """One that leases more than callers wait for."""

    def want(self, usage: object) -> int:
        return super().want(usage) + 5


def holding(api: Api, stage: Stage, sizer: Moody, clock: Clock) -> Any:
    """A limiter with tokens of many keys."""
    limiter = api(stage, "0.001/s burst 100", sizer=sizer, clock=clock)
    for key in KEYS:
        limiter.acquire(key)
    return limiter


def test_a_sizer_is_not_asked_by_a_limiter_that_closes(api: Api, clock: Clock, without_refresher: None) -> None:
    """It once was, for a key that owed something; and where it raised, no tokens of other keys went back."""
    stage, sizer = Stage(), Greedy()
    limiter = holding(api, stage, sizer, clock)
    with limiter.reserve(KEYS[3], 1) as reservation:
        reservation.settle(20)
    assert limiter.statistics().owed > 0
    sizer.broken = True
    limiter.close()
    found = limiter.statistics()
    assert (found.held, found.owed, found.waiting) == (0, 0, 0)
    assert sum(back.tokens for back in stage.backs) == 4 * (len(KEYS) - 1)


def test_what_fails_at_one_key_is_raised_when_all_is_done_for_the_others(
    api: Api,
    clock: Clock,
    without_refresher: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    limiter = holding(api, stage, Greedy(), clock)
    here = getattr(limiter, "_inner", limiter)
    here._registry.own_store(1.0)
    unlucky, drain = here._entries[KEYS[70]].reservoir.lifecycle, Lifecycle.drain

    def fail_once(lifecycle: Lifecycle) -> Any:
        if lifecycle is unlucky:
            raise ZeroDivisionError("no tokens of this one")
        return drain(lifecycle)

    monkeypatch.setattr(Lifecycle, "drain", fail_once)
    with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError, match="no tokens of this one"):
        limiter.close()
    assert sum(back.tokens for back in stage.backs) == 4 * (len(KEYS) - 1)
    assert [record.getMessage() for record in caplog.records] == ["tokens of a key were not given back; the others are"]
    assert stage.closed == 1
    with pytest.raises(LimiterClosed):
        limiter.acquire(KEYS[0])

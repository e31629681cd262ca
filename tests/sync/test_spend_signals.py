"""Signals that raise amid the spend of a thread: those whom it leads have their answers, and nobody waits for ever."""

from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

from batchlimit import Quota, RateLimiter
from batchlimit.batching import FixedBatch, TimeBatch
from batchlimit.sync.spends import Spends
from tests.depth import depth
from tests.opcodes import Signals
from tests.sync.stage import DEADLINE, Gate, nothing, start, until
from tests.sync.test_spends import Till, queue_of

TEN = Quota(0.001, 10)
AGAIN = 60
"""Places within which a second signal comes: so many has what an interrupted call does to leave."""


def lead(limiter: RateLimiter, till: Till, call: Callable[[], object]) -> None:
    """Have a thread call while another one asks, and two more after it, which it leads if it gets that far."""
    queue = queue_of(limiter)
    queue._patience = 10 * DEADLINE  # to come again after a while is no help here
    gate = till.before = Gate()
    first = start(lambda: limiter.try_acquire("first"))
    gate.await_someone()
    till.before = nothing
    victim = start(call)
    until(lambda: bool(queue._waiting) or victim.done())
    followers = []
    for key in ("a", "b"):
        others = len(queue._waiting)
        followers.append(start(partial(limiter.try_acquire, key)))
        until(lambda others=others: len(queue._waiting) == others + 1 or victim.done())  # type: ignore[misc]
    gate.open()
    victim.result(DEADLINE)
    for each in (first, *followers):
        each.result(DEADLINE)


def led_amid(signals: Signals, keys: list[str]) -> None:
    till = Till(lambda: 0.0)
    with RateLimiter(till, TEN, sizer=FixedBatch(1)) as limiter:
        limiter.try_acquire("the background thread begins")
        lead(limiter, till, lambda: signals.run(partial(limiter.decide_all, dict.fromkeys(keys, 1))))
        where = " and ".join(signals.raised)
        queue = queue_of(limiter)
        until(lambda: queue._leader is None)  # the background thread may be about to end it
        assert (list(queue._waiting), queue._inside) == ([], set()), f"one is left since {where}"
        assert limiter.statistics().waiting == 0, f"a ghost waits since {where}"


@pytest.mark.parametrize("keys", [["x"], ["x", "y"]], ids=["one key", "two keys"])
def test_those_whom_an_interrupted_thread_leads_have_their_answers(keys: list[str]) -> None:
    for place in count(1):
        signals = Signals(place)
        led_amid(signals, keys)
        if not signals.raised:
            break
    assert place > 100


def test_those_whom_a_thread_leads_have_their_answers_though_it_is_interrupted_twice() -> None:
    """The second signal came while it handed on the lead: they waited until the patience of two deadlines was over."""
    place, has_come = 1, True
    while has_come:
        for again in range(1, AGAIN, depth(7, 2)):
            signals = Signals(place, again)
            led_amid(signals, ["x"])
            has_come = bool(signals.raised)
        place += depth(7, 2)


def test_a_handler_that_is_interrupted_amid_a_call_that_spends_nothing_does_not_stay_in_the_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asks at a key at which the call spends that it has interrupted. Others waited until its patience was over."""
    till = Till(lambda: 0.0)
    with RateLimiter(till, Quota(1000.0, 1000), sizer=TimeBatch()) as limiter:
        queue, leave = queue_of(limiter), Spends._leave

        def interrupted(*_: object) -> None:
            monkeypatch.setattr(Spends, "_leave", leave)
            raise KeyboardInterrupt

        def handler() -> None:
            till.before = nothing
            monkeypatch.setattr(Spends, "_leave", interrupted)
            limiter.try_acquire("a")  # the third call of a key leases

        limiter.try_acquire("a")
        till.before = handler
        with pytest.raises(KeyboardInterrupt):
            limiter.try_acquire("a")
        until(lambda: queue._leader is None)

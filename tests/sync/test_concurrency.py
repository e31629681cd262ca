"""Threads at a concurrency limiter: never more under way than the limit says, and nobody waits for nothing."""

import gc
import random
import threading
import weakref
from typing import Any
from unittest import mock

import pytest

from batchlimit import ConcurrencyLimited, ConcurrencyLimiter, LimiterClosed, Partitions, Queue
from batchlimit.base.waking import ThreadWakeup
from batchlimit.concurrency import Permit, Shedding
from batchlimit.concurrency.laws import Fixed, Settable
from batchlimit.concurrency.permit import OVER
from batchlimit.concurrency.queue import GateWaiter
from batchlimit.concurrency.shedding import Shedder
from tests.interrupts import Interrupt
from tests.sync.stage import DEADLINE, start, together, until


class Room:
    """Counts who is inside, and the most that ever were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.inside = self.most = self.served = 0

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1
            self.served += 1


@pytest.mark.parametrize("order", ["fifo", "lifo"])
def test_sixteen_threads_never_exceed_a_strict_limit(order: str) -> None:
    """With shares, queues, timeouts and permits completed twice; the room itself counts."""
    limiter = ConcurrencyLimiter(
        Fixed(5),
        partitions=Partitions({"live": 0.6, "batch": 0.2}, strict=True),
        queue=Queue(8, max_wait=0.002, order=order),  # type: ignore[arg-type]
    )
    room = Room()

    def hammer() -> int:
        refused = 0
        rng = random.Random(threading.get_ident())
        for _ in range(400):
            try:
                with limiter.acquire(
                    rng.choice(["live", "batch", "other"]), timeout=rng.choice([0, 0.0001, None])
                ) as permit:
                    with room:
                        pass
                    if rng.random() < 0.1:
                        permit.drop()
            except ConcurrencyLimited:
                refused += 1
        return refused

    refused = sum(together(16, hammer))
    seen = limiter.statistics()
    assert room.most <= 5
    assert (seen.in_flight, seen.waiting) == (0, 0)
    assert seen.succeeded + seen.dropped == room.served == 16 * 400 - refused
    assert sum(seen.refused.values()) == refused


def test_a_permit_collected_amid_the_limiter_is_released() -> None:
    """The collector may run anywhere, also in a thread that holds the lock: here during the law, which it guards."""
    held: list[Permit] = []

    class Untidy(Fixed):
        def update(self, sample: object) -> int:
            held.clear()
            return self.limit

    limiter = ConcurrencyLimiter(Untidy(2))
    held.append(limiter.acquire())
    with pytest.warns(ResourceWarning, match="was never completed"):
        limiter.acquire().success()
    assert (limiter.statistics().in_flight, limiter.statistics().abandoned) == (0, 1)


def test_a_call_may_enter_amid_a_change_that_ended_another_one() -> None:
    """As a destructor may that the garbage collector runs while the limiter changes: it once went round for ever."""
    limiter = ConcurrencyLimiter(Fixed(2))
    permit = limiter.acquire()

    def change() -> None:
        permit.success()
        limiter.acquire().success()

    limiter._locked_gate.do(change)
    assert (limiter.statistics().in_flight, limiter.statistics().succeeded) == (0, 2)


def test_a_refusal_is_gone_when_it_was_caught() -> None:
    """The error and the frames it passed do not refer to each other: nothing is left to the garbage collector."""
    limiter, seen = ConcurrencyLimiter(Fixed(1)), list[weakref.ref[ConcurrencyLimited]]()
    gc.disable()
    try:
        with limiter.acquire():
            try:
                limiter.acquire()
            except ConcurrencyLimited as error:
                seen.append(weakref.ref(error))
        assert seen[0]() is None
    finally:
        gc.enable()


# Between two steps of a caller


def step_by_step(limiter: ConcurrencyLimiter) -> tuple[Permit, GateWaiter, list[str]]:
    """A caller who was refused entry, and does not wait yet."""
    permit, woken = Permit(limiter._locked_gate, "", 0, False), []
    assert permit._enter("", 9.0)
    return permit, GateWaiter(lambda: woken.append("woken")), woken


def test_a_place_that_came_before_the_line_is_had() -> None:
    limiter = ConcurrencyLimiter(Fixed(1), queue=Queue(5))
    holder = limiter.acquire()
    permit, waiter, woken = step_by_step(limiter)
    holder.success()
    limiter._locked_gate.join_queue(waiter, "")
    assert woken == ["woken"]
    assert limiter._locked_gate.leave_queue(permit, waiter)
    permit.success()
    assert not limiter._locked_gate.leave_queue(permit, waiter)
    assert limiter.statistics().in_flight == 0


def test_nobody_lines_up_once_it_is_closed() -> None:
    limiter = ConcurrencyLimiter(Fixed(1), queue=Queue(5))
    holder = limiter.acquire()
    _, waiter, _ = step_by_step(limiter)
    limiter.close()
    with pytest.raises(LimiterClosed):
        limiter._locked_gate.join_queue(waiter, "")
    holder.success()


def test_of_many_who_waited_each_that_is_served_wakes_some_others() -> None:
    """The caller that raises the limit serves a few only, so it does not stand still, however many wait."""
    woken: dict[int, int] = {}

    class Counted(ThreadWakeup):
        def wake(self) -> None:
            woken[threading.get_ident()] = woken.get(threading.get_ident(), 0) + 1
            super().wake()

    law = Settable(1)
    limiter = ConcurrencyLimiter(law, queue=Queue(100, max_wait=None))
    holder = limiter.acquire()
    with mock.patch("batchlimit.concurrency.permit.ThreadWakeup", Counted):
        waiting = [start(limiter.acquire) for _ in range(100)]
        until(lambda: limiter.statistics().waiting == 100)
    law.set_limit(101)
    permits = [each.result(DEADLINE) for each in waiting]
    assert limiter.statistics().in_flight == 101
    assert sum(woken.values()) == 100
    assert 0 < woken[threading.get_ident()] <= 16
    for permit in [holder, *permits]:
        permit.success()


def test_who_cannot_be_woken_passes_the_place_on_however_many_they_are() -> None:
    def nobody() -> None:
        raise RuntimeError("the event loop is closed")

    limiter = ConcurrencyLimiter(Fixed(1), queue=Queue(3000))
    holder = limiter.acquire()
    for _ in range(2000):
        limiter._locked_gate.join_queue(GateWaiter(nobody), "")
    permit, waiter, woken = step_by_step(limiter)
    limiter._locked_gate.join_queue(waiter, "")
    holder.success()
    assert woken == ["woken"]
    assert limiter._locked_gate.leave_queue(permit, waiter)
    permit.success()
    assert (limiter.statistics().in_flight, limiter.statistics().waiting) == (0, 0)


# Where a signal handler raises


def test_a_handler_that_raises_anywhere_leaves_no_ghost_in_line() -> None:
    """Nor less than nobody. What it costs at most is the place of whom it kept from being woken."""
    interrupted, n, all_of_them = True, 0, []
    while interrupted:
        n += 1
        limiter = ConcurrencyLimiter(Fixed(1), queue=Queue(9))
        all_of_them.append(limiter)
        holder = limiter.acquire()
        callers = [step_by_step(limiter) for _ in range(3)]

        def serve(limiter: ConcurrencyLimiter = limiter, holder: Permit = holder, callers: Any = callers) -> None:
            for _, waiter, _ in callers:
                limiter._locked_gate.join_queue(waiter, "")
            limiter._locked_gate.leave_queue(*callers[0][:2])
            holder.success()

        interrupted = Interrupt(n).run(serve)
        holder.success()
        for permit, waiter, _ in callers:
            if limiter._locked_gate.leave_queue(permit, waiter):
                permit.success()
        for permit, waiter, _ in callers:  # who was served only now
            if permit._state is not OVER and limiter._locked_gate.leave_queue(permit, waiter):
                permit.success()
        assert limiter.statistics().waiting == 0, f"call {n}"
    assert n > 50


def test_who_was_served_and_interrupted_twice_costs_no_place() -> None:
    """The first time while it waited, the second time where it leaves the queue: nobody has the place that it got."""
    limiter = ConcurrencyLimiter(Fixed(1), queue=Queue(9))
    holder = limiter.acquire()
    permit, waiter, woken = step_by_step(limiter)
    limiter._locked_gate.join_queue(waiter, "")
    holder.success()
    assert (woken, limiter.statistics().in_flight) == (["woken"], 1)
    del permit, waiter
    limiter.acquire(timeout=0).success()
    assert limiter.statistics().abandoned == 1


def test_a_permit_that_never_began_is_collected_without_a_word() -> None:
    """A signal handler raised between its __new__ and its __init__."""
    permit = Permit.__new__(Permit)
    with mock.patch("sys.unraisablehook") as hook:
        del permit
    assert not hook.called


# In a forked child


def test_a_child_has_locks_and_shares_of_its_own() -> None:
    """Another thread of the parent held the lock; nobody in the child ever releases that."""
    limiter = ConcurrencyLimiter(Fixed(4), partitions=Partitions({"live": 0.5}))
    locked, over = threading.Event(), threading.Event()

    def hold() -> None:
        with limiter._locked_gate.lock:
            locked.set()
            over.wait(DEADLINE)

    holding = start(hold)
    assert locked.wait(DEADLINE)
    limiter._locked_gate.after_fork()
    limiter.acquire("live").success()
    assert limiter.statistics().partitions["live"].guaranteed == 2
    over.set()
    holding.result(DEADLINE)


def test_a_child_of_who_closed_is_closed() -> None:
    limiter = ConcurrencyLimiter(Fixed(4))
    limiter.close()
    limiter._locked_gate.after_fork()
    with pytest.raises(LimiterClosed):
        limiter.acquire()


# Shedding


def test_a_thread_that_is_shed_finds_out_when_it_looks() -> None:
    limiter = ConcurrencyLimiter(Fixed(3))
    fixed, least, more = (limiter.acquire(priority=n, sheddable=n > 0) for n in (0, 1, 2))
    Shedder(Shedding(after=1, share=0.5)).end_period(["memory"], limiter._locked_gate)
    for spared in (fixed, more):
        spared.check()
        spared.success()
    with pytest.raises(ConcurrencyLimited, match=r"refused \(shed\)"), least:
        least.check()
    seen = limiter.statistics()
    assert (seen.shed, seen.ignored, seen.succeeded, seen.in_flight) == (1, 1, 2, 0)
    assert seen.refused == {"shed": 1}


def test_who_is_over_is_not_shed() -> None:
    limiter = ConcurrencyLimiter(Fixed(3))
    limiter.acquire(sheddable=True).success()
    assert limiter._locked_gate.excess()[1] == []

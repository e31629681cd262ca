"""Callers that wait without a thread: called back with a permit, or with the reason why there is none."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from batchlimit import ConcurrencyLimited, ConcurrencyLimiter, LimiterClosed, Partitions, Queue
from batchlimit.concurrency import Keyed, KeyedConcurrencyLimiter, Permit, Shedding
from batchlimit.laws import Fixed, Settable
from tests.sync.stage import DEADLINE, until


class Back:
    """Remembers what it was called back with."""

    def __init__(self) -> None:
        self.permits: list[Permit] = []
        self.reasons: list[str] = []
        self.threads: list[threading.Thread] = []

    def admitted(self, permit: Permit) -> None:
        self.permits.append(permit)

    def refused(self, error: Exception) -> None:
        self.threads.append(threading.current_thread())
        self.reasons.append(error.reason if isinstance(error, ConcurrencyLimited) else type(error).__name__)

    def wait_at(self, limiter: Any, *args: Any, **options: Any) -> Permit | None:
        found: Permit | None = limiter.acquire_later(self.admitted, self.refused, *args, **options)
        return found


@contextmanager
def full(queue: Queue, **options: Any) -> Iterator[tuple[ConcurrencyLimiter, Permit]]:
    with ConcurrencyLimiter(Fixed(1), queue=queue, **options) as limiter:
        held = limiter.acquire()
        yield limiter, held
        held.success()


PATIENT = Queue(100, max_wait=None)


def nobody_waits() -> bool:
    return not any(each.name == "batchlimit-deadlines" for each in threading.enumerate())


def test_where_there_is_room_the_permit_comes_at_once() -> None:
    with ConcurrencyLimiter(Fixed(1), queue=PATIENT) as limiter:
        back = Back()
        permit = back.wait_at(limiter)
        assert permit is not None
        permit.success()
        assert (back.permits, back.reasons, limiter.statistics().succeeded) == ([], [], 1)


def test_who_waits_is_called_back_by_who_makes_room_in_the_order_of_the_queue() -> None:
    with full(PATIENT) as (limiter, held):
        back = Back()
        assert [back.wait_at(limiter, operation=str(i), priority=i) for i in range(3)] == [None] * 3
        held.success()
        for i in (2, 1, 0):
            assert back.permits[-1].operation == str(i)
            back.permits[-1].success()
        seen = limiter.statistics()
        assert (len(back.permits), seen.succeeded, seen.waiting, seen.waits.total) == (3, 4, 0, 3)


def test_threads_and_callbacks_wait_in_one_queue() -> None:
    with full(PATIENT) as (limiter, held):
        back = Back()
        assert back.wait_at(limiter) is None
        held.success()
        thread = threading.Thread(target=lambda: limiter.acquire().success())
        thread.start()
        until(lambda: limiter.statistics().waiting == 1)
        back.permits[0].success()
        thread.join(DEADLINE)
        assert limiter.statistics().succeeded == 3


def test_who_waited_in_vain_is_told_in_the_background_and_the_thread_ends_then() -> None:
    with full(Queue(5, max_wait=0.001)) as (limiter, held):
        back = Back()
        assert back.wait_at(limiter) is None
        assert back.wait_at(limiter, timeout=0.002) is None
        until(lambda: back.reasons == ["queue_timeout"] * 2)
        assert {each.name for each in back.threads} == {"batchlimit-deadlines"}
        assert limiter.statistics().waiting == 0
        held.success()
        assert back.permits == []
    until(nobody_waits)


def test_a_shorter_wait_that_began_later_ends_first() -> None:
    with full(PATIENT) as (limiter, held):
        patient, hurried = Back(), Back()
        assert patient.wait_at(limiter) is None
        assert hurried.wait_at(limiter, timeout=0.001) is None
        until(lambda: hurried.reasons == ["queue_timeout"])
        held.success()
        patient.permits.pop().success()
    until(nobody_waits)


@pytest.mark.parametrize(
    ("queue", "timeout", "reason"), [(Queue(0), None, "limit"), (PATIENT, 0, "limit"), (Queue(1), None, "queue_full")]
)
def test_who_may_not_wait_is_refused_at_once(queue: Queue, timeout: float | None, reason: str) -> None:
    with full(queue) as (limiter, held):
        back = Back()
        if reason == "queue_full":
            assert back.wait_at(limiter) is None
        with pytest.raises(ConcurrencyLimited) as refused:
            back.wait_at(limiter, timeout=timeout)
        assert (refused.value.reason, back.permits, back.reasons) == (reason, [], [])
        held.success()
        for permit in back.permits:
            permit.success()


def test_who_is_displaced_is_told_so() -> None:
    with full(Queue(1, max_wait=None)) as (limiter, held):
        low, high = Back(), Back()
        assert low.wait_at(limiter) is None
        assert high.wait_at(limiter, priority=1) is None
        until(lambda: low.reasons == ["queue_full"])
        held.success()
        high.permits.pop().success()


def test_a_limiter_that_is_closed_tells_all_who_wait() -> None:
    with full(PATIENT) as (limiter, held):
        back = Back()
        for _ in range(40):
            assert back.wait_at(limiter) is None
        limiter.close()
        until(lambda: back.reasons == ["LimiterClosed"] * 40)
        held.success()
        with pytest.raises(LimiterClosed):
            back.wait_at(limiter)


def test_a_strict_share_that_is_lent_serves_who_waits_for_it() -> None:
    """Nobody leaves: time alone makes room."""
    shares, now = Partitions({"live": 0.5}, strict=True), 0
    with ConcurrencyLimiter(Fixed(2), partitions=shares, queue=PATIENT, clock=lambda: now) as limiter:
        limiter.acquire("live").success()
        held, back = limiter.acquire(), Back()
        assert back.wait_at(limiter) is None
        now = 1_000_000_000
        until(lambda: len(back.permits) == 1)
        held.success()
        back.permits[0].success()


def test_a_permit_of_a_callback_may_be_shed() -> None:
    law = Settable(2)
    with ConcurrencyLimiter(law, queue=PATIENT, every=0.001, shedding=Shedding(over=1)) as limiter:
        held, at_once, back = limiter.acquire(), Back(), Back()
        now = at_once.wait_at(limiter, sheddable=True, priority=5)
        assert back.wait_at(limiter, sheddable=True) is None
        held.success()
        law.set_limit(1)
        until(lambda: back.permits[0].shed)
        assert now is not None
        assert not now.shed
        back.permits[0].ignore()
        now.success()


def test_a_callback_that_raises_gives_its_permit_back(caplog: pytest.LogCaptureFixture) -> None:
    def fails(permit: Permit) -> None:
        raise ValueError(permit)

    with full(PATIENT) as (limiter, held), caplog.at_level(logging.ERROR):
        assert limiter.acquire_later(fails, fails) is None  # type: ignore[arg-type]
        assert limiter.acquire_later(fails, fails, timeout=0.001) is None  # type: ignore[arg-type]
        until(lambda: len(caplog.records) == 1)
        held.success()
        assert limiter.statistics().in_flight == 0
    events = {record.batchlimit_event for record in caplog.records}  # type: ignore[attr-defined]
    assert (len(caplog.records), events) == (2, {"permit.callback_failed"})


def test_many_who_were_served_leave_nothing_behind() -> None:
    with full(PATIENT) as (limiter, held):
        back = Back()
        assert back.wait_at(limiter) is None
        for _ in range(1000):
            assert back.wait_at(limiter) is None
            (held.success if back.permits == [] else back.permits.pop().success)()
        assert len(limiter._deadlines._waiting) < 200
        back.permits.pop().success()
        back.permits.pop().success()


def test_a_key_has_callers_that_wait_without_a_thread() -> None:
    with KeyedConcurrencyLimiter({"repo:*": Keyed(1, queue=Queue(1, max_wait=None))}) as limiter:
        back, held = Back(), limiter.acquire("repo:1")
        assert back.wait_at(limiter, "repo:1") is None
        other = back.wait_at(limiter, "repo:2")
        assert other is not None
        other.success()
        held.success()
        back.permits.pop().success()
        assert limiter.statistics().patterns["repo:*"].succeeded == 3


def test_without_another_thread_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with full(PATIENT) as (limiter, held):
        monkeypatch.setattr(threading.Thread, "start", start)
        back = Back()
        assert back.wait_at(limiter) is None
        assert back.reasons == ["queue_timeout"]
        held.success()


def test_threads_that_leave_at_once_call_everybody_back_once() -> None:
    many, back = 200, Back()
    with ConcurrencyLimiter(Fixed(4), queue=Queue(many, max_wait=None)) as limiter:
        held = [limiter.acquire() for _ in range(4)]

        def complete(permit: Permit) -> None:
            back.permits.append(permit)
            done.release()

        done = threading.Semaphore(0)
        for _ in range(many):
            assert limiter.acquire_later(complete, back.refused, timeout=DEADLINE) is None

        def leave() -> None:
            while True:
                try:
                    held.pop().success()
                except IndexError:
                    break
            while done.acquire(timeout=0.01):
                back.permits.pop(0).success()

        threads = [threading.Thread(target=leave) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(DEADLINE)
        for permit in back.permits:
            permit.success()
        seen = limiter.statistics()
        assert (seen.succeeded, seen.in_flight, seen.waiting, back.reasons) == (many + 4, 0, 0, [])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_calls_nobody_of_its_parent_back() -> None:
    with full(PATIENT) as (limiter, held):
        back = Back()
        assert back.wait_at(limiter) is None
        pid = os.fork()
        if not pid:
            mine, child = limiter.acquire(), Back()
            waits = child.wait_at(limiter) is None
            mine.success()
            os._exit(0 if waits and len(child.permits) == 1 and not back.permits else 1)
        assert os.waitpid(pid, 0)[1] == 0
        held.success()
        back.permits.pop().success()

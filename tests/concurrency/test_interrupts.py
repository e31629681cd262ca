"""Signal handlers that raise, wherever they meet a caller: nobody waits for ever, and nothing stays locked."""

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from batchlimit import ConcurrencyLimited, ConcurrencyLimiter, LimiterClosed, Queue
from batchlimit.concurrency import Keyed, KeyedConcurrencyLimiter
from batchlimit.laws import Fixed
from tests.depth import depth
from tests.interrupts import Raise, interrupted, stop_at_random
from tests.nodes import await_fact
from tests.sync.stage import DEADLINE, start

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*never completed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_who_was_to_be_woken_by_a_call_that_was_interrupted_is_woken_all_the_same() -> None:
    """Else a thread waits for ever, perhaps while it holds the only place."""
    waiting: list[tuple[ConcurrencyLimiter, threading.Thread]] = []

    def story(interrupt: Raise) -> None:
        limiter = ConcurrencyLimiter(Fixed(1), queue=Queue(9, max_wait=None))
        permit = limiter.acquire()
        thread = threading.Thread(target=lambda: limiter.acquire().success())
        thread.start()
        await_fact(lambda: limiter.statistics().waiting == 1, "it waits")
        interrupt.run(permit.success)
        waiting.append((limiter, thread))

    interrupted(story)
    for limiter, thread in waiting:
        thread.join(DEADLINE)
        assert (thread.is_alive(), limiter.statistics().in_flight) == (False, 0)


def test_an_exception_that_is_kept_keeps_no_lock() -> None:
    """Its traceback keeps the frames that it came through: other threads waited for ever for what these held."""
    kept: list[BaseException] = []

    def story(interrupt: Raise) -> None:
        limiter = ConcurrencyLimiter(Fixed(1), queue=Queue(9, max_wait=0.0001))
        holder = limiter.acquire()

        def wait_in_vain() -> None:
            try:
                limiter.acquire()
            except BaseException as error:
                kept.append(error)
                raise

        def call() -> None:
            with pytest.raises(ConcurrencyLimited):
                wait_in_vain()

        interrupt.run(call)
        start(holder.success).result(DEADLINE)
        start(limiter.acquire).result(DEADLINE).success()

    interrupted(story)
    assert kept


def is_free(count: Callable[[], int]) -> bool:
    """Whether no permit is out, those aside that an exception amid another one holds in a cycle, with its frames."""
    gc.collect()
    return not count()


@pytest.mark.parametrize("kind", ["one", "keyed", "several"])
def test_asynchronous_exceptions_lose_no_place_and_no_thread_waits_for_ever(kind: str) -> None:
    one = ConcurrencyLimiter(Fixed(2), queue=Queue(9, max_wait=None))
    keyed = KeyedConcurrencyLimiter({"*": Keyed(1, queue=Queue(9, max_wait=None))})

    enter: dict[str, Callable[[], Any]] = {
        "one": one.acquire,
        "keyed": lambda: keyed.acquire("a"),
        "several": lambda: keyed.acquire_all(["a", "b"]),
    }

    def call() -> None:
        with enter[kind]():
            pass

    stop_at_random(call, depth(500, 100_000))
    await_fact(lambda: is_free(lambda: one.statistics().in_flight), "all permits came back")
    await_fact(lambda: is_free(lambda: keyed.statistics().patterns["*"].in_flight), "all permits came back")


def test_a_limiter_that_a_handler_closes_amid_a_change_lets_nobody_in_from_then_on() -> None:
    seen: list[Any] = []

    class Rung(Fixed):
        def update(self, sample: object) -> int:
            limiter.close()
            with pytest.raises(LimiterClosed):
                limiter.acquire()
            seen.append("closed")
            return self.limit

    limiter = ConcurrencyLimiter(Rung(5))
    limiter.acquire().success()
    assert seen == ["closed"]

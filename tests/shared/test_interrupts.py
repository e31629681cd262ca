"""Signal handlers that raise, and asynchronous exceptions: wherever they meet a caller, no slot is lost for ever."""

import contextlib
import ctypes
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable
from itertools import count
from types import FrameType

import pytest

from batchlimit import ConcurrencyLimited
from batchlimit.base.blocking import AMID
from batchlimit.bucket.slot_table import SlotPush
from batchlimit.shared import Shared, SharedConcurrencyLimiter
from batchlimit.shared.held_slots import SlotWaiter
from batchlimit.shared.holdings import Holdings
from batchlimit.stores.memory import MemoryStore
from tests.depth import depth
from tests.nodes import await_fact
from tests.shared.test_limiter import limiter_of
from tests.shared.test_local_slots import World
from tests.sync.test_concurrency import Interrupt

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*never released:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


class Raise(Interrupt):
    """At any call but the end of a `with` for a lock: no signal is handled between its block and that."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if getattr(argument, "__name__", "") != "__exit__":
            super().__call__(frame, event, argument)

    @property
    def has_come(self) -> bool:
        """Whether there were so many calls. A destructor or the end of a generator may have swallowed it."""
        return self._left <= 0


def block(limiter: SharedConcurrencyLimiter, key: str) -> Callable[[], None]:
    def call() -> None:
        with limiter.acquire(key):
            pass

    return call


def wait_in_vain(limiter: SharedConcurrencyLimiter, key: str) -> Callable[[], None]:
    def call() -> None:
        with limiter.acquire(key), contextlib.suppress(ConcurrencyLimited):
            limiter.acquire(key, timeout=0.001)

    return call


def is_at_rest(limiter: SharedConcurrencyLimiter) -> bool:
    return not any(each.in_flight or each.waiting for each in limiter.statistics().keys.values())


@pytest.mark.parametrize("story", [block, wait_in_vain])
def test_a_handler_that_raises_at_any_call_loses_no_slot_and_leaves_no_ghost_in_line(
    story: Callable[..., object],
) -> None:
    with limiter_of(MemoryStore(), {"*": 1}) as limiter:
        for n in count(1):
            interrupt = Raise(n)
            interrupt.run(story(limiter, f"{n}"))  # type: ignore[arg-type]
            if not interrupt.has_come:
                break
        assert n > 50
        await_fact(lambda: is_at_rest(limiter), "all permits came back")


def test_who_was_to_be_served_by_a_call_that_was_interrupted_is_served_all_the_same() -> None:
    """Else a thread waits for ever, perhaps while it holds the only slot."""
    with limiter_of(MemoryStore(), {"*": 1}) as limiter:
        threads = []
        for n in count(1):
            key = f"{n}"
            permit = limiter.acquire(key)
            threads.append(threading.Thread(target=block(limiter, key)))
            threads[-1].start()
            await_fact(lambda key=key: limiter.statistics().keys[key].waiting == 1, "it waits")  # type: ignore[misc]
            interrupt = Raise(n)
            interrupt.run(permit.release)
            del permit
            if not interrupt.has_come:
                break
        for thread in threads:
            thread.join(100)
        assert n > 50
        await_fact(lambda: is_at_rest(limiter), "all permits came back")


class Stopped(BaseException):
    pass


def stop_at_random(call: Callable[[], object], raised: int) -> None:
    """Call in three threads, amid so many asynchronous exceptions."""
    # Python 3.11 gives a new thread the exception of the one that starts it, which then waits for it for ever.
    call()
    over = threading.Event()

    wrong: list[RuntimeError] = []

    def work() -> None:
        while not over.is_set():
            with contextlib.suppress(Stopped, ConcurrencyLimited):
                try:
                    call()
                except RuntimeError as error:
                    # The background thread may not have ended the call that was interrupted here: this one is refused.
                    if str(error) != AMID:
                        wrong.append(error)

    def stubborn() -> None:
        while not over.is_set():
            with contextlib.suppress(Stopped):
                work()

    threads = [threading.Thread(target=stubborn) for _ in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        # One may fall into a destructor, and the next one into the hook of pytest that is told of it.
        patch.setattr(sys, "unraisablehook", id)
        for thread in threads:
            thread.start()
        for _ in range(raised):
            victim = random.choice(threads).ident
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(victim or 0), ctypes.py_object(Stopped))
            time.sleep(0.0002)
        over.set()
        for thread in threads:
            thread.join(100)
            assert not thread.is_alive()
    assert not wrong


def test_asynchronous_exceptions_lose_no_slot() -> None:
    raised, limits = depth(500, 100_000), {"gpu": Shared(2)}
    with limiter_of(MemoryStore(), limits) as limiter, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        stop_at_random(block(limiter, "gpu"), raised)
        await_fact(lambda: is_at_rest(limiter), "all permits came back")
        assert limiter.statistics().admitted > 0


# The parts


def test_a_waiter_that_has_a_place_since_an_interrupted_call_gets_no_second_one() -> None:
    world = World(9, "a")
    first = world.get("a")
    slots, waiter = world.all["a"], SlotWaiter(lambda: None, True, 0, None)
    slots.line.add(waiter)
    world.leave("a", first)
    place = waiter.place
    slots.line.add(waiter)  # as if its removal had not been reached
    told = SlotPush(slots.held.name, slots.held.count + 2, slots.held.last, -1)
    assert slots.hear(told, world.now) == [waiter]
    assert waiter.place is place
    assert slots.held.busy == 1


def test_a_plan_that_an_ask_came_before_is_made_anew() -> None:
    world = World(2, "a")
    slots, keys = world.all["a"], Holdings(lambda key: key, lambda: 0)
    slots.due = 5
    keys.note(slots, 0)
    slots.due = 9
    assert keys.due(5) == []
    assert keys.next() == 9
    assert keys.due(9) == [slots]

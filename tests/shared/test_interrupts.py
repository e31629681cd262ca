"""Signal handlers that raise, and asynchronous exceptions: wherever they meet a caller, no slot is lost for ever."""

import contextlib
import threading
import warnings
from collections.abc import Callable
from itertools import count

import pytest

from batchlimit import ConcurrencyLimited
from batchlimit.bucket.slot_table import SlotPush
from batchlimit.shared import Shared, SharedConcurrencyLimiter
from batchlimit.shared.held_slots import SlotWaiter
from batchlimit.shared.holdings import Holdings
from batchlimit.stores.memory import MemoryStore
from tests.depth import depth
from tests.interrupts import Raise, interrupted, stop_at_random
from tests.nodes import await_fact
from tests.shared.test_limiter import limiter_of
from tests.shared.test_local_slots import World

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*never released:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


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
    story: Callable[..., Callable[[], None]],
) -> None:
    keys = count()
    with limiter_of(MemoryStore(), {"*": 1}) as limiter:
        interrupted(lambda interrupt: interrupt.run(story(limiter, f"{next(keys)}")))
        await_fact(lambda: is_at_rest(limiter), "all permits came back")


def test_who_was_to_be_served_by_a_call_that_was_interrupted_is_served_all_the_same() -> None:
    """Else a thread waits for ever, perhaps while it holds the only slot."""
    threads: list[threading.Thread] = []

    def story(interrupt: Raise) -> None:
        key = f"{len(threads)}"
        permit = limiter.acquire(key)
        threads.append(threading.Thread(target=block(limiter, key)))
        threads[-1].start()
        await_fact(lambda: limiter.statistics().keys[key].waiting == 1, "it waits")
        interrupt.run(permit.release)

    with limiter_of(MemoryStore(), {"*": 1}) as limiter:
        interrupted(story)
        for thread in threads:
            thread.join(100)
        await_fact(lambda: is_at_rest(limiter), "all permits came back")


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
    slots.hear(told, world.now)
    assert slots.line.ready == [waiter]
    assert waiter.place is place
    assert len(slots.held.places) == 1


def test_a_plan_that_an_ask_came_before_is_made_anew() -> None:
    world = World(2, "a")
    slots, keys = world.all["a"], Holdings(lambda key: key, lambda: 0)
    slots.due = 5
    keys.note(slots, 0)
    slots.due = 9
    assert keys.due(5) == []
    assert keys.next() == 9
    assert keys.due(9) == [slots]

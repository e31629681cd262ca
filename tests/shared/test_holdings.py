"""What the thread that asks learns of keys: when to ask, whom to wake, what is left."""

from typing import Any

from batchlimit.bucket.slot_messages import SlotPush, SlotReply
from batchlimit.concurrency.queue import Queue
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.failure_policy import CLOSED
from batchlimit.shared.holdings import Holdings, Keys, SharedKeyStatistics
from batchlimit.shared.limits import Shared
from batchlimit.shared.line import SlotWaiter
from batchlimit.shared.local_slots import LocalSlots
from batchlimit.shared.renewer import LeaseRenewer
from tests.shared.test_local_slots import World

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def slots_of(key: str, due: float = 0.0) -> LocalSlots:
    """Slots of a key, of which the store was never asked; `due` seconds from now it is to be."""
    slots = LocalSlots(key, Shared(1), lambda: "a.1", 1)
    slots.due = START + due * SECOND
    return slots


def test_who_gets_a_slot_by_a_push_is_woken_at_once() -> None:
    holdings, slots, woken = Holdings(str, lambda: START), slots_of("gpu"), []
    holdings.keys.add(slots)
    slots.line_up(SlotWaiter(lambda: woken.append("it"), True, 0, None), START)
    slots.answer(slots.ask(START), SlotReply(0, 1, -1, False, 1, 1, 2), START, START)
    assert woken == []
    holdings.hear("gpu", SlotPush("a.1", 1, 2, -1))
    assert woken == ["it"]


def test_the_next_key_is_the_one_that_is_due_first() -> None:
    keys, later, sooner = Keys(str), slots_of("a", due=5), slots_of("b", due=3)
    assert [keys.note(later, START), keys.note(sooner, START)] == [True, True]
    assert keys.next() == sooner.due
    assert keys.note(later, START) is False, "nothing has changed"
    assert keys.due(START + 4 * SECOND) == [sooner]


def test_a_key_is_forgotten_once() -> None:
    keys, slots = Keys(str), slots_of("a")
    keys.add(slots)
    assert [keys.drop(slots), keys.drop(slots)] == [True, False]


def test_after_a_failed_ask_the_store_has_a_moment_of_peace() -> None:
    store: Any = None
    renewer, slots = LeaseRenewer(store, store, lambda key: CLOSED, lambda: START), slots_of("a", due=60)
    renewer._failed(slots, StoreUnavailable("away"))
    assert 0.05 * SECOND <= slots.due - START <= 0.15 * SECOND


def test_of_a_key_of_which_the_store_told_nothing_nothing_is_lent() -> None:
    holdings = Holdings(str, lambda: START)
    holdings.keys.add(slots_of("a"))
    assert holdings.statistics().keys == {"a": SharedKeyStatistics(0, 0, 0, 1, 0, 0)}


def test_a_limit_has_a_queue_of_a_thousand_callers_without_an_end() -> None:
    assert Shared(1).queue == Queue(1000, max_wait=None)


def test_after_pushes_may_have_been_lost_the_store_is_asked_about_keys_where_somebody_waits() -> None:
    world = World(1, "a", "b")
    holdings = Holdings(str, lambda: world.now)
    world.get("a")
    world.wait("b")
    world.settle()
    for name, slots in world.all.items():
        slots.key = name
        holdings.keys.add(slots)
    holdings.look_at_all()
    assert [slots.due == world.now for slots in world.all.values()] == [False, True]
    assert holdings.keys.due(world.now) == [world.all["b"]]

"""What the thread that asks learns of keys: when to ask, whom to wake, what is left."""

import math
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from batchlimit.base.waking import Event
from batchlimit.bucket.slot_table import SlotReply
from batchlimit.concurrency.queue import Queue
from batchlimit.errors import StoreUnavailable
from batchlimit.quota.failure_policy import CLOSED
from batchlimit.shared import engine as engine_module
from batchlimit.shared.engine import Engine
from batchlimit.shared.held_slots import Claim, SlotWaiter
from batchlimit.shared.holdings import Holdings, SharedKeyStatistics
from batchlimit.shared.local_slots import LocalSlots, Shared, limits_of
from tests.shared.test_local_slots import World

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def engine_of(store: Any, clock: Callable[[], int]) -> Engine:
    return Engine(store, store, limits_of({"*": 1}), policy_of=lambda key: CLOSED, weight=1, clock=clock)


def slots_of(key: str, due: float = 0.0) -> LocalSlots:
    """Slots of a key, of which the store was never asked; `due` seconds from now it is to be."""
    slots = LocalSlots(key, Shared(1), lambda: "a.1", 1)
    slots.due = START + due * SECOND
    return slots


def test_a_waiter_whose_event_loop_was_closed_gives_back_what_it_got_and_is_looked_at_no_more() -> None:
    holdings, slots = Holdings(str, lambda: START), slots_of("gpu")
    slots.line_up(SlotWaiter(Mock(side_effect=RuntimeError), True, 0, None), START)
    slots.answer(slots.ask(START), SlotReply(1, 1, -1, False, 1, 1, 2), START, START)
    holdings.wake_all(slots)
    assert (dict(slots.held.places), list(slots.line.unwoken)) == ({}, [])


def test_the_next_key_is_the_one_that_is_due_first() -> None:
    holdings, later, sooner = Holdings(str, lambda: START), slots_of("a", due=5), slots_of("b", due=3)
    wakes = list[float]()
    holdings.wake = SimpleNamespace(set=lambda: wakes.append(holdings.next()))  # type: ignore[assignment]
    for slots in (later, sooner, later, sooner):  # at last nothing has changed
        holdings.note(slots, START)
    assert wakes == [later.due, sooner.due]
    assert holdings.due(START + 4 * SECOND) == [sooner]


def test_a_key_is_forgotten_once() -> None:
    holdings, slots = Holdings(str, lambda: START), slots_of("a", due=9)
    holdings.add(slots)
    assert (holdings.drop(slots), len(holdings)) == (False, 1), "the store is to be asked about it"
    slots.due, slots.admitted = math.inf, 3
    assert [holdings.drop(slots), holdings.drop(slots)] == [True, True]
    assert (len(holdings), holdings.statistics().admitted) == (0, 3)


class Calls:
    """A store that lends what a test says, or is away; at once."""

    def __init__(self) -> None:
        self.reply: SlotReply | None = None

    def call(self, key: str, call: Any, *arguments: Any) -> Any:
        if self.reply is None:
            raise StoreUnavailable("away")
        return self.reply

    lend = knock = None


@pytest.mark.parametrize(
    ("reply", "chance", "seconds"),
    [
        (None, min, 0.05),
        (None, max, 0.15),
        (SlotReply(0, 1, -1, True, 1, 1, 2), min, 0.5),
        (SlotReply(0, 1, -1, True, 1, 1, 2), max, 1.0),
    ],
)
def test_who_waits_has_the_store_asked_again_soon_and_after_a_failure_sooner(
    reply: SlotReply | None, chance: Any, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = Calls()
    store.reply = reply
    monkeypatch.setattr(engine_module, "uniform", lambda *both: chance(both))
    engine, slots = engine_of(store, lambda: START), slots_of("a", due=60)
    slots.line_up(SlotWaiter(lambda: None, True, 0, None), START)
    engine._ask(slots, slots.ask(START), START)
    assert engine.holdings.statistics().asks == (reply is not None), "answers are counted"
    assert (slots.due - START) / SECOND == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(("due", "passed", "seconds"), [(0.25, 0.0, 0.25), (0.25, 0.5, 0.0), (math.inf, 0.0, math.inf)])
def test_the_thread_that_asks_sleeps_until_it_is_to_ask_next(due: float, passed: float, seconds: float) -> None:
    """Meanwhile some time may have passed."""
    store: Any = Calls()
    now, slept = START, list[float]()
    engine = engine_of(store, lambda: now)
    engine.holdings.add(slots := slots_of("a", due))
    engine.holdings.note(slots, START)

    class Asleep(Exception):
        pass

    class Wake(Event):
        def wait(self, seconds: float | None) -> bool:
            slept.append(seconds or 0.0)
            raise Asleep

    def find_none() -> list[LocalSlots]:
        nonlocal now
        now += round(passed * SECOND)
        return []

    engine.holdings.wake, engine._due = Wake(), find_none  # type: ignore[method-assign]
    with pytest.raises(Asleep):
        engine._run()
    assert slept == [pytest.approx(seconds, abs=1e-6)]


@pytest.mark.parametrize(("is_dropped", "seconds"), [(False, 1.0), (True, 0.0)])
def test_close_waits_a_second_until_the_store_has_back_what_is_free_and_the_thread_that_asks_never(
    is_dropped: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = Calls()
    engine, waited = engine_of(store, lambda: START), list[float]()
    engine._thread = threading.current_thread()  # so that there is something to wait for
    monkeypatch.setattr(engine._flushed, "wait", waited.append)
    if is_dropped:
        engine.retire()
        assert engine._due() is None
    else:
        engine.close()
    assert waited == [seconds]


def test_what_interrupted_callers_left_is_looked_for_each_second_and_when_a_permit_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store: Any = Calls()
    now, looks = START, list[int]()
    engine = engine_of(store, lambda: now)
    monkeypatch.setattr(Holdings, "left_behind", lambda self, gone: looks.append(len(gone)))
    for seconds, gone, found in [
        (0.0, 0, [0]),
        (0.999999999, 0, []),
        (1.0, 0, [0]),
        (1.1, 2, [2]),
        (2.0, 0, []),
        (2.1, 0, [0]),
    ]:
        now = START + round(seconds * SECOND)
        for _ in range(gone):
            engine.gone(Claim(engine))
        engine._due()
        assert looks == found, f"after {seconds} s"
        looks.clear()


@pytest.mark.parametrize(
    ("is_used", "is_away", "has_knocked"), [(False, False, False), (True, False, True), (True, True, False)]
)
def test_an_instance_hears_what_it_published_itself_if_it_could(
    is_used: bool, is_away: bool, has_knocked: bool
) -> None:
    store: Any = Calls()
    store.reply = None if is_away else SlotReply(0, 1, -1, True, 1, 1, 2)
    engine = engine_of(store, lambda: START)
    if is_used:
        engine.holdings.add(slots_of("a"))
    assert engine._knocked(lambda key, instance: None) == has_knocked


def test_of_a_key_of_which_the_store_told_nothing_nothing_is_lent() -> None:
    holdings = Holdings(str, lambda: START)
    holdings.add(slots_of("a"))
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
        holdings.add(slots)
    holdings.look_at_all()
    assert [slots.due == world.now for slots in world.all.values()] == [False, True]
    assert holdings.due(world.now) == [world.all["b"]]


def test_a_limiter_that_ends_stops_all_that_it_began() -> None:
    store: Any = Calls()
    engine, ended = engine_of(store, lambda: START), list[str]()
    store.stop = lambda: ended.append("calls")
    engine._listener = SimpleNamespace(stop=lambda: ended.append("listener"))  # type: ignore[assignment]
    engine.owned = SimpleNamespace(close=lambda: ended.append("store"))
    engine.close()
    assert sorted(ended) == ["calls", "listener", "store"]
    assert engine._flushed.is_set(), "nobody waits for it"

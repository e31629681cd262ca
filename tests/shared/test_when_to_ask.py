"""When the store is asked about a key, and what becomes of those who wait meanwhile."""

import threading
from typing import Any

from batchlimit.errors import StoreUnavailable
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.shared import Shared, SharedConcurrencyLimiter
from batchlimit.shared.holdings import Holdings
from tests.nodes import await_fact
from tests.shared.test_limiter import Cut, in_child, limiter_of
from tests.shared.test_local_slots import SECOND, World


class Deaf(Cut):
    """A store whose pushes do not arrive."""

    def listen(self, instance: str, receive: Any) -> None:
        pass


def test_a_caller_that_waits_for_no_release_has_the_store_asked_at_once() -> None:
    world = World(1, "a")
    world.get("a")
    for _ in range(4):
        world.wait("a")
        world.settle()
    world.wait("a")
    assert world.all["a"].due > world.now
    world.wait("a", is_patient=False)
    assert world.all["a"].due == world.now


def test_the_last_waiter_that_gives_up_has_the_store_told() -> None:
    world = World(1, "a")
    world.get("a")
    waiters = [world.wait("a"), world.wait("a")]
    world.settle()
    slots = world.all["a"]
    slots.give_up(waiters[0], world.now)
    assert slots.due > world.now
    slots.give_up(waiters[1], world.now)
    assert slots.due == world.now


def test_after_a_lost_answer_whoever_came_meanwhile_has_the_store_asked_at_once() -> None:
    world = World(1, "a")
    slots = world.all["a"]
    world.wait("a")
    slots.ask(world.now)
    world.wait("a", is_patient=False)
    slots.fail(StoreUnavailable("away"), world.now + 1_000_000, 0)
    assert slots.due == world.now


def test_while_somebody_waits_a_lease_that_never_began_is_not_over() -> None:
    world = World(1, "a")
    slots = world.all["a"]
    waiter = world.wait("a")
    slots.ask(world.now)
    slots.fail(StoreUnavailable("away"), world.now + 1_000_000, 0)
    world.now += 100 * SECOND
    assert slots.expire(world.now) == []
    assert slots.held.name == "a.1"
    slots.give_up(waiter, world.now)
    slots.expire(world.now)
    assert slots.held.name == "a.2"


def test_who_waits_looks_for_a_push_that_was_lost() -> None:
    """Its lease is to be renewed in 20 minutes."""
    store = Deaf()
    limits = {"gpu": Shared(1, lease=3600.0)}
    with limiter_of(store, limits) as one, limiter_of(store, limits) as other:
        permit = one.acquire("gpu")
        thread = threading.Thread(target=lambda: other.acquire("gpu").release())
        thread.start()
        await_fact(lambda: bool(other.statistics().keys) and other.statistics().asks >= 1, "the store knows of it")
        permit.release()
        thread.join(100)
        assert not thread.is_alive()


def test_the_end_of_a_permit_of_an_outage_has_the_store_asked_for_those_who_wait() -> None:
    world = World(4, "a")
    slots, waiter = world.all["a"], world.wait("a")
    slots.ask(world.now)
    slots.fail(CircuitOpen("away"), world.now + 1_000_000, 1)
    assert waiter.place
    world.now += 10
    world.wait("a")
    slots.ask(world.now)
    world.leave("a", waiter.place)
    assert slots.due == world.now


def test_an_answer_ends_what_waiters_are_told_of_a_failure() -> None:
    world = World(4, "a")
    slots = world.all["a"]
    world.wait("a")
    slots.ask(world.now)
    error = StoreUnavailable("late")
    slots.fail(error, world.now, 0)
    assert slots.asks.error is error
    world.settle()
    assert slots.asks.error is None


def test_an_ask_says_that_waiters_want_slots_soon_unless_others_wait_too() -> None:
    world = World(1, "a", "b")
    place = world.get("a")
    world.wait("a")
    assert world.all["a"].ask(world.now).extra == 2
    world.wait("b")
    world.settle()
    world.deliver()
    assert world.all["a"].ask(world.now).extra == 0
    assert world.leave("a", place) == []


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


def test_a_permit_of_an_outage_is_lost_in_a_forked_child() -> None:
    with (
        SharedConcurrencyLimiter.from_url("redis://127.0.0.1:1", {"gpu": 1}, on_failure="open") as limiter,
        limiter.acquire("gpu", timeout=0) as permit,
    ):
        assert in_child(lambda: permit.lost)
        assert not permit.lost

"""Tables of (event, expected) on one key in this process: who gets a slot, what is asked for, what goes back."""

import math
from itertools import count
from typing import Any

import pytest

from batchlimit.bucket.slot_table import SlotAsk, SlotPush, SlotReply, SlotTable
from batchlimit.concurrency.queue import Queue
from batchlimit.errors import ConcurrencyLimited, LimiterClosed, StoreUnavailable
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.shared.held_slots import RENEWED, Claim, Line, Place, SlotWaiter
from batchlimit.shared.local_slots import LocalSlots, Shared, forget

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


class World:
    """A store, instances of its fleet, and a clock that a test moves."""

    def __init__(self, limit: int, *names: str, queue: Queue | None = None) -> None:
        self.now = START
        self.table = SlotTable()
        shared = Shared(limit, queue) if queue else Shared(limit)
        self.all = {name: LocalSlots("key", shared, self._names(name), 1) for name in names}
        self.pushes: list[SlotPush] = []

    @staticmethod
    def _names(name: str) -> "type[str]":
        numbers = count(1)
        return lambda: f"{name}.{next(numbers)}"  # type: ignore[return-value]

    def enter(self, name: str) -> Place | None:
        return self.all[name].enter(self.now)

    def wait(self, name: str, is_patient: bool = True) -> SlotWaiter:
        waiter = SlotWaiter(lambda: None, is_patient, 0, None)
        self.all[name].line_up(waiter, self.now)
        return waiter

    def exchange(self, name: str) -> list[SlotWaiter]:
        """Let an instance ask, and hear the answer."""
        slots = self.all[name]
        ask = slots.ask(self.now)
        return woken(slots.answer, ask, self.lend(ask), self.now, self.now)

    def lend(self, ask: SlotAsk) -> SlotReply:
        self.now += 1000
        reply, pushes = self.table.lend(ask, self.now // 1000)
        self.pushes += pushes
        return reply

    def deliver(self) -> list[SlotWaiter]:
        """Let all instances hear what was pushed."""
        pushes, self.pushes = self.pushes, []
        return [waiter for push in pushes for waiter in woken(self.all[push.instance[0]].hear, push, self.now)]

    def settle(self) -> None:
        """Let everybody ask who has to, until nobody has."""
        for _ in range(100):
            self.deliver()
            due = [name for name, slots in self.all.items() if slots.due <= self.now]
            if not due:
                return
            for name in due:
                self.exchange(name)
        raise AssertionError("they never come to rest")

    def get(self, name: str) -> Place:
        """A place for a new caller."""
        if place := self.enter(name):
            return place
        waiter = self.wait(name)
        self.settle()
        assert waiter.place
        return waiter.place

    def leave(self, name: str, place: Place) -> list[SlotWaiter]:
        return woken(self.all[name].leave, place, self.now)


def woken(change: Any, *args: Any) -> list[SlotWaiter]:
    """Make a change; return who is to be woken then."""
    change(*args)
    line: Line = change.__self__.line
    ready, line.unwoken = line.ready, {}
    return ready


def test_nobody_enters_before_the_store_has_answered() -> None:
    world = World(5, "a")
    assert world.enter("a") is None
    waiter = world.wait("a")
    assert world.all["a"].due == START
    world.all["a"].ask(world.now)
    assert not world.all["a"].is_in_vain, "nobody knows yet"
    assert world.exchange("a") == [waiter]
    assert waiter.place


def test_of_many_slots_some_stay_here_and_a_caller_takes_one_without_asking() -> None:
    world = World(1000, "a", "b")
    place = world.get("a")
    asked = world.all["a"].sent
    for _ in range(1000):
        world.leave("a", place)
        world.settle()
        found = world.enter("a")
        assert found
        place = found
    assert (world.all["a"].sent, world.all["a"].admitted) == (asked, 1001)


def test_a_slot_that_others_wait_for_goes_to_them_though_somebody_waits_here_too() -> None:
    world = World(1, "a", "b")
    place = world.get("a")
    theirs = world.wait("b")
    world.settle()
    ours = world.wait("a")
    assert world.leave("a", place) == []
    world.settle()
    assert theirs.place
    assert not ours.place


def test_slots_go_round_among_more_instances_than_slots() -> None:
    world = World(2, *"abcde")
    places = {name: world.get(name) for name in "ab"}
    waiting = {name: world.wait(name) for name in "cde"}
    world.settle()
    served = dict.fromkeys("abcde", 0)
    for _ in range(50):
        name = next(iter(places))
        world.leave(name, places.pop(name))
        waiting[name] = world.wait(name)
        world.settle()
        for other in [each for each, waiter in waiting.items() if waiter.place]:
            served[other] += 1
            place = waiting.pop(other).place
            assert place
            places[other] = place
    assert max(served.values()) - min(served.values()) <= 1


def test_an_instance_at_its_fair_share_hands_slots_on_within_the_process() -> None:
    world = World(4, "a", "b")
    places = [world.get("a") for _ in range(2)]
    for _ in range(2):
        world.get("b")
    world.wait("b")
    waiter = world.wait("a")
    world.settle()
    asked = world.all["a"].sent
    assert world.leave("a", places[0]) == [waiter]
    world.settle()
    assert world.all["a"].sent == asked


def test_a_caller_that_does_not_wait_is_refused_by_the_first_answer_to_an_ask_after_it_came() -> None:
    world = World(1, "a", "b")
    world.get("a")
    slots = world.all["b"]
    world.wait("b")
    ask = slots.ask(world.now)
    late = world.wait("b", is_patient=False)
    assert woken(slots.answer, ask, world.lend(ask), world.now, world.now) == []
    assert world.exchange("b") == [late]
    assert isinstance(late.error, ConcurrencyLimited)


def test_the_store_is_told_when_twice_as_many_wait() -> None:
    world = World(1, "a")
    world.get("a")
    asked = []
    for _ in range(16):
        world.wait("a")
        world.settle()
        asked.append(world.all["a"].sent)
    assert asked[-1] - asked[0] == 4


def test_a_lease_counts_from_before_the_ask_and_a_tenth_of_it_is_left_out() -> None:
    world = World(1, "a")
    slots = world.all["a"]
    world.wait("a")
    sent, ask = world.now, slots.ask(world.now)
    world.now += 2 * SECOND
    slots.answer(ask, world.lend(ask), sent, world.now)
    assert slots.held.lease.until == sent + 9 * SECOND
    assert slots.due == sent + 10 * SECOND * RENEWED


def test_a_permit_is_lost_when_its_lease_is_over_and_stays_lost() -> None:
    world = World(1, "a")
    place = world.get("a")
    world.now = int(world.all["a"].held.lease.until) - 1
    assert not place.is_lost(world.now)
    world.now += 1
    assert place.is_lost(world.now)
    assert world.all["a"].expire(world.now) == [place]
    assert world.all["a"].expire(world.now) == []
    world.now += SECOND  # the store lends it again
    world.get("a")
    assert place.is_lost(world.now)
    assert world.leave("a", place) == []
    assert len(world.all["a"].held.places) == 1


def renewal_under_way(world: World) -> tuple[Place, SlotAsk, int, SlotReply]:
    """A permit, and an ask that the store has answered; the answer has not arrived."""
    place, slots = world.get("a"), world.all["a"]
    world.now = int(slots.due) + 1
    ask, sent = slots.ask(world.now), world.now
    return place, ask, sent, world.lend(ask)


def test_a_renewal_that_arrives_when_the_lease_is_over_revives_no_permit() -> None:
    world = World(1, "a")
    slots = world.all["a"]
    place, ask, sent, reply = renewal_under_way(world)
    world.now = int(slots.held.lease.until)
    assert woken(slots.answer, ask, reply, sent, world.now) == []
    assert place.is_lost(world.now)
    assert slots.due == world.now
    assert slots.expire(world.now) == [place]
    assert slots.held.name == "a.2"


def test_who_was_told_that_a_permit_is_lost_is_right_though_a_renewal_comes_in_at_that_instant() -> None:
    world = World(1, "a")
    slots = world.all["a"]
    place, ask, sent, reply = renewal_under_way(world)
    arrived = int(slots.held.lease.until) - 1
    assert place.is_lost(arrived + 1)  # of another thread, before this one takes the answer over
    slots.answer(ask, reply, sent, arrived)
    assert place.is_lost(arrived + 1)
    assert not slots.held.has_free(arrived)
    assert slots.expire(arrived + 1) == [place]


class Holder:
    def __init__(self, place: Place, told: list[Place]) -> None:
        self._place, self._told = place, told

    def hurry(self) -> None:
        self._told.append(self._place)


def test_what_a_store_has_lost_is_claimed_and_what_there_is_no_room_for_is_lost() -> None:
    world = World(4, "a", "b")
    places = [world.get("a") for _ in range(3)]
    world.table = SlotTable()
    for _ in range(3):
        world.get("b")
    told: list[Place] = []
    for place in places:
        place.holder = lambda place=place: Holder(place, told)
    world.exchange("a")
    assert [place.is_lost(world.now) for place in places] == [False, True, True]
    assert set(told) == set(places[1:])
    assert world.table.lent == 4


def test_a_token_is_larger_than_that_of_every_permit_before_if_there_is_one_slot() -> None:
    world = World(1, "a", "b")
    tokens = []
    for turn in range(20):
        name = "aab"[turn % 3]
        place = world.get(name)
        tokens.append(place.token)
        world.leave(name, place)
    assert tokens == sorted(set(tokens))


def test_one_lost_answer_fails_those_alone_who_do_not_wait() -> None:
    world = World(4, "a")
    patient, impatient = world.wait("a"), world.wait("a", is_patient=False)
    error = StoreUnavailable("late")
    world.all["a"].ask(world.now)
    assert woken(world.all["a"].fail, error, world.now, 0) == [impatient]
    assert impatient.error is error
    world.settle()
    assert patient.place


def test_a_key_of_which_the_store_never_answered_is_forgotten_after_a_lease() -> None:
    world = World(4, "a")
    slots = world.all["a"]
    world.wait("a")
    slots.ask(world.now)
    slots.fail(CircuitOpen("away"), world.now + SECOND, 0)
    for seconds, is_over in (0.0, False), (9.9, False), (0.1, True):
        world.now += round(seconds * SECOND)
        assert slots.expire(world.now) == []
        assert slots.is_over == is_over


def test_while_the_store_is_away_as_many_enter_as_the_policy_says() -> None:
    world = World(4, "a")
    slots = world.all["a"]
    error = CircuitOpen("away")
    waiters = [world.wait("a") for _ in range(3)]
    slots.ask(world.now)
    assert woken(slots.fail, error, world.now + 1, 2) == waiters
    assert [each.error for each in waiters] == [None, None, error]
    assert slots.in_flight == 2
    assert waiters[0].place
    assert not waiters[0].place.is_lost(world.now + 100 * SECOND)
    world.leave("a", waiters[0].place)
    assert slots.in_flight == 1
    world.now += 1
    world.settle()
    assert (slots.due, slots.is_over) == (math.inf, False)
    assert waiters[1].place
    world.leave("a", waiters[1].place)
    assert (slots.due, slots.is_over) == (math.inf, True), "the store has nothing to be told"


# When the store is asked


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


def test_the_end_of_a_permit_of_an_outage_has_the_store_asked_for_those_who_wait() -> None:
    world = World(4, "a")
    slots, waiter = world.all["a"], world.wait("a")
    slots.ask(world.now)
    slots.fail(CircuitOpen("away"), world.now + 1_000_000, 1)
    assert waiter.place
    world.now += 10
    world.wait("a")
    slots.ask(world.now)
    for at, due in (world.now, world.now), (world.now + 5, math.inf):
        world.now, slots.due = at, math.inf
        world.leave("a", waiter.place)
        assert slots.due == due, "a second time it changes nothing"


def test_an_answer_ends_what_waiters_are_told_of_a_failure() -> None:
    world = World(4, "a")
    slots = world.all["a"]
    world.wait("a")
    slots.ask(world.now)
    error = StoreUnavailable("late")
    slots.fail(error, world.now, 0)
    assert slots.error is error
    world.settle()
    assert slots.error is None


def test_an_ask_says_that_waiters_want_slots_soon_unless_others_wait_too() -> None:
    world = World(1, "a", "b")
    first = World(1, "a")
    first.wait("a")
    assert first.all["a"].ask(first.now)[-2:] == (1, 0), "extra and idle"
    place = world.get("a")
    world.wait("a")
    assert world.all["a"].ask(world.now).extra == 2
    world.wait("b")
    world.settle()
    world.deliver()
    assert world.all["a"].ask(world.now).extra == 0
    assert world.leave("a", place) == []


def test_whoever_closes_keeps_no_slot_without_a_permit() -> None:
    world = World(1000, "a")
    place, slots = world.get("a"), world.all["a"]
    world.leave("a", world.get("a"))
    assert slots.held.count > 1
    error = LimiterClosed("closed")
    waiter = SlotWaiter(lambda: None, True, 0, None)
    slots.line.add(waiter)
    assert woken(slots.close, error, world.now) == [waiter]
    world.settle()
    assert (slots.held.count, waiter.error) == (1, error)
    world.leave("a", place)
    world.settle()
    assert slots.is_over


class Permit:
    """Something that the garbage collector may find."""


@pytest.mark.parametrize("is_away", [False, True])
def test_nobody_looks_for_a_permit_that_was_released_before_it_was_gone(is_away: bool) -> None:
    world, permit, gone = World(1, "a"), Permit(), list[Any]()
    slots, waiter = world.all["a"], SlotWaiter(lambda: None, True, 0, Claim(permit, gone.append))
    slots.line_up(waiter, world.now)
    if is_away:
        slots.ask(world.now)
        slots.fail(CircuitOpen("away"), world.now, 1)
    else:
        world.settle()
    place, waiter.claim = waiter.place, None
    assert place
    world.leave("a", place)
    del permit
    assert gone == []


def test_a_waiter_that_an_interrupted_call_was_to_serve_and_that_gave_up_is_kept_no_longer() -> None:
    world = World(1, "a")
    slots, waiter = world.all["a"], world.wait("a")
    assert slots.line.next() is waiter
    slots.give_up(waiter, world.now)
    assert woken(slots.left_behind, set(), world.now) == []
    assert not slots.line.unwoken


def test_a_forked_child_holds_nothing() -> None:
    world = World(1, "a")
    slots, of_store = world.all["a"], world.get("a")
    waiter = world.wait("a")
    slots.ask(world.now)
    slots.fail(CircuitOpen("away"), world.now, 9)
    assert waiter.place
    assert [each.is_lost(world.now) for each in (of_store, waiter.place)] == [False, False]
    forget(slots)
    assert [each.is_lost(world.now) for each in (of_store, waiter.place)] == [True, True]

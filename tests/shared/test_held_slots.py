"""Tables on the slots under one lease: what goes back, and when."""

import pytest

from batchlimit.bucket.slot_table import TICK, SlotAsk, SlotPush, SlotReply
from batchlimit.shared.held_slots import SEQUENCE, HeldSlots

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
LEASE = 10


def held(granted: int, busy: int, keep: int = -1, spare: int = 100, idle: int = 0) -> HeldSlots:
    """So many slots, of which so many are in use; `spare` more are free at the store, which heard of `idle` ones."""
    slots = HeldSlots("a.1")
    ask = SlotAsk("a.1", limit=granted + spare, lease=LEASE * 1_000_000, idle=idle)
    slots.renew(ask, SlotReply(granted, 1, keep, False, granted, granted + spare, 1), START)
    for _ in range(busy):
        assert slots.has_free(START)
        slots.take(None)
    return slots


@pytest.mark.parametrize(
    ("keep", "spare", "is_closing", "surplus"),
    [
        (-1, 100, False, 0),  # of many free slots the idle ones stay
        (-1, 2, False, 3),  # of few as many as half of the free ones stay
        (-1, -3, False, 4),  # more are lent than there are, since the limit was lowered
        (-1, 100, True, 4),
        (3, 100, False, 4),  # somebody else waits for them
        (0, 100, False, 4),
    ],
)
def test_idle_slots_go_back_unless_there_are_enough_for_all(
    keep: int, spare: int, is_closing: bool, surplus: int
) -> None:
    assert held(6, 2, keep, spare).surplus(is_closing) == surplus


def test_a_slot_beyond_what_may_be_kept_goes_back_when_its_permit_ends() -> None:
    slots = held(2, 2, keep=1)
    first, second = slots.places
    assert [slots.end(first), slots.end(second)] == [True, True]
    assert slots.has_free(START)
    slots.take(None)
    assert not slots.has_free(START)


@pytest.mark.parametrize(("granted", "lost"), [(2, 0), (1, 1), (0, 2)])
def test_permits_are_lost_whose_slots_the_store_does_not_know_any_more(granted: int, lost: int) -> None:
    slots = held(2, 2)
    places = list(slots.places)
    ask = SlotAsk("a.1", limit=2, lease=LEASE * 1_000_000)
    slots.renew(ask, SlotReply(granted, 2, -1, True, granted, 2, 1), START)
    assert sum(each.is_lost(START) for each in places) == lost
    assert (len(slots.places), slots.count) == (2 - lost, granted)


def test_a_renewal_keeps_what_was_in_use_at_once_since_the_last_one() -> None:
    slots = held(8, 5)
    for place in list(slots.places):
        slots.end(place)
    counts = []
    for _ in range(2):
        slots.give_back(START + LEASE * SECOND // 2, is_closing=False)
        counts.append(slots.count)
    assert counts == [5, 0]


def test_permits_beyond_the_last_number_of_a_token_stay_below_the_next_token() -> None:
    slots = HeldSlots("a.1", last=7)
    numbers = [slots.take(None).token for _ in range(SEQUENCE + 1)]
    assert numbers == sorted(numbers)
    assert numbers[-1] == 7 * SEQUENCE + SEQUENCE - 1
    assert slots.hear(SlotPush("a.1", SEQUENCE + 2, 8, -1))
    assert numbers[-1] < slots.take(None).token


def test_tokens_fit_into_a_signed_64_bit_integer_until_2100() -> None:
    assert 4_102_444_800 * 1_000_000 // TICK * SEQUENCE < 2**63


@pytest.mark.parametrize(("early", "count"), [(1, 8), (0, 0)])
def test_between_two_renewals_idle_slots_stay_and_at_one_those_go_back_that_nothing_ever_needed(
    early: int, count: int
) -> None:
    slots = held(8, 0)
    slots.give_back(round(slots.lease.renewal) - early, is_closing=False)
    assert slots.count == count


def test_a_push_tells_whether_others_wait() -> None:
    slots = held(1, 0)
    assert slots.keep < 0
    assert slots.hear(SlotPush("a.1", 1, 1, 0))
    assert slots.keep >= 0
    assert not slots.hear(SlotPush("a.2", 5, 2, -1))
    assert (slots.count, slots.keep >= 0) == (1, True)


def test_a_slot_that_the_store_gave_to_others_does_not_go_back_when_its_permit_ends_meanwhile() -> None:
    slots = held(1, 1, keep=0)
    (place,) = slots.places
    slots.end(place)
    ask = SlotAsk("a.1", limit=1, lease=LEASE * 1_000_000, held=1)
    slots.renew(ask, SlotReply(0, 2, -1, True, 1, 1, 2), START)  # the store lost its data, and B was faster
    slots.give_back(START, is_closing=False)
    assert (slots.count, slots.returned) == (0, 0)


def test_idle_slots_count_among_the_free_ones_of_which_a_part_stays() -> None:
    assert held(6, 2, spare=0, idle=4).surplus(is_closing=False) == 2


def test_a_slot_that_nobody_waits_for_any_more_goes_back_though_no_ask_was_answered() -> None:
    slots = HeldSlots("a.1")
    assert slots.keep < 0
    assert slots.hear(SlotPush("a.1", 1, 1, -1))
    assert slots.surplus(is_closing=False) == 1


def test_what_went_back_is_not_left_out_of_what_is_granted_later() -> None:
    slots = held(2, 2, keep=1)
    slots.end(next(iter(slots.places)))
    slots.give_back(START, is_closing=False)
    assert slots.hear(SlotPush("a.1", 3, 2, -1))
    assert slots.has_free(START)


def test_what_the_store_forgot_does_not_go_back_while_others_are_in_use() -> None:
    slots = held(3, 3, keep=0)
    slots.end(next(iter(slots.places)))
    ask = SlotAsk("a.1", limit=3, lease=LEASE * 1_000_000, held=3)
    slots.renew(ask, SlotReply(2, 2, -1, True, 3, 3, 2), START)
    slots.give_back(START, is_closing=False)
    assert (slots.count, slots.returned) == (2, 0)

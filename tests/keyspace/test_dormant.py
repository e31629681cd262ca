"""Keys at rest: a snapshot comes back as it was; keys leave when idle, or the first first, and a few at a time."""

import gc
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchlimit.keyspace.kept_keys import DormantKeys
from batchlimit.reservoir.bucket_view import KeySnapshot

EPOCH = 4_000_000_000_000_000
"""Microseconds: the year 2096."""


def snapshot(used: float, **rest: float) -> KeySnapshot:
    fields = {"demand": 0.5, "counted_at": used, "last_want": 3, "epoch": EPOCH, "level": -7, "active_instances": 4}
    return KeySnapshot(used=used, **(fields | {"round_trip": 0.001, "heard": used} | rest))


def filled(keys: int, *, most: int = 1000, idle_after: float = math.inf) -> DormantKeys:
    """One key a second came to rest, each when it was used last."""
    rest = DormantKeys(idle_after, most)
    for i in range(keys):
        rest.put(f"key-{i}", snapshot(float(i)), float(i))
    return rest


@pytest.mark.parametrize("largest", [2**53, -(2**53)])
def test_a_memo_keeps_whole_numbers_whole(largest: int) -> None:
    assert KeySnapshot.unpack(snapshot(0.0, level=largest).pack()).level == largest


def test_who_is_idle_is_forgotten_in_time_and_nobody_before() -> None:
    rest = filled(100, idle_after=40.0)
    for now in range(100, 150):
        while rest.due <= now:
            rest.forget_idle(float(now))
        there = {i for i in range(100) if rest.take(f"key-{i}") is not None}
        assert there >= {i for i in range(100) if now - i < 40}
        assert there <= {i for i in range(100) if now - i < 40 + 40 / 8 + 1}
        for i in sorted(there):
            rest.put(f"key-{i}", snapshot(float(i)), float(now))


def test_who_is_idle_already_does_not_come_to_rest() -> None:
    rest = DormantKeys(10.0, 100)
    rest.put("a", snapshot(5.0), 15.0)
    assert (len(rest), rest.due) == (0, math.inf)


def test_many_are_forgotten_a_few_at_a_time() -> None:
    rest = DormantKeys(10.0, 10_000)
    for i in range(5000):
        rest.put(f"key-{i}", snapshot(0.0), 0.0)
    lots, now = [], rest.due
    while rest.due < math.inf:
        before = len(rest)
        later = rest.forget_idle(now)
        lots.append(before - len(rest))
        assert later == (now + 0.001 if rest.due < math.inf else math.inf)
        now = later
    assert max(lots) == 256
    assert sum(lots) == 5000


def test_who_came_first_makes_room_first() -> None:
    """A quarter of them at a time: within it there is no order."""
    rest = filled(1000, most=1000)
    rest.make_room(7)
    assert len(rest) == 992
    assert all(rest.take(f"key-{i}") is not None for i in range(250, 1000))
    assert len(rest) == 242


def test_too_many_leave_in_several_steps() -> None:
    rest = filled(100, most=100)
    rest.make_room(49)
    assert len(rest) == 92
    rest.make_room(7)
    assert len(rest) == 92
    filled(0, most=5).make_room(9)


def test_the_garbage_collector_does_not_see_them() -> None:
    """Else it would stop the process for a second to look at a million."""
    gc.collect()
    before = len(gc.get_objects())
    rest = filled(2000, most=100_000)
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    assert len(rest) == 2000


@pytest.mark.parametrize(("most", "idle_after"), [(1, math.inf), (100, 1e-3), (10_000, math.inf), (10**7, 3600.0)])
def test_who_looks_for_a_key_looks_at_a_few_shelves(most: int, idle_after: float) -> None:
    """However long ago it was, and however many left."""
    rest = DormantKeys(idle_after, most)
    for i in range(3000):
        rest.put(f"key-{i}", snapshot(1.0 * i), 1.0 * i)
        if i % 50:
            rest.take(f"key-{i}")
    assert len(rest._shelves) <= 8


@given(
    st.sampled_from([1, 5, 100]),
    st.lists(st.tuples(st.sampled_from(["put", "take", "room", "forget"]), st.integers(0, 20), st.floats(0.0, 9.0))),
)
@example(1, [("put", 0, 0.0), ("put", 1, 0.0)])
def test_whatever_happens_it_knows_how_many_there_are(most: int, steps: list[tuple[str, int, float]]) -> None:
    rest, there, now = DormantKeys(10.0, most), dict[str, KeySnapshot](), 0.0
    for step, number, seconds in steps:
        now, key = now + seconds, f"key-{number}"
        if step == "put" and key not in there:
            there[key] = snapshot(now)
            rest.put(key, there[key], now)
            assert any(key in shelf.snapshots for shelf in rest._shelves), "others make room for who comes"
        elif step == "take":
            assert rest.take(key) == there.pop(key, None)
        elif step == "room":
            rest.make_room(number)
        else:
            rest.forget_idle(now)
        kept = {key for shelf in rest._shelves for key in shelf.snapshots}
        assert all(now >= there[key].used + 10.0 for key in there.keys() - kept) or step in ("put", "room")
        there = {key: there[key] for key in kept}
        assert len(rest) == len(kept) == sum(len(shelf.snapshots) for shelf in rest._shelves)


def test_the_first_key_of_a_shelf_says_when_to_come_and_the_others_need_nobody() -> None:
    rest, packed = DormantKeys(10.0, 100), snapshot(0.0).pack()
    assert rest.keep({"a": packed}, 1.0, 1.0) == 11.0
    assert rest.keep({"b": packed}, 1.5, 1.5) == math.inf
    assert rest.keep({"c": packed}, 3.5, 3.5) == math.inf  # a quarter of the time later
    assert rest.keep({"d": packed}, 3.51, 3.51) == 13.51  # on a shelf of its own
    rest.make_room(99)
    assert rest.keep({"e": packed}, 6.5, 6.5) == 16.5
    assert rest.keep({"f": packed}, 6.5, 20.0) == math.inf  # idle by now

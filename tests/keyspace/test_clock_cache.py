"""The ring of what is kept: the unused leave, the used and the needed stay, and nobody looks at more than a few."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.keyspace.kept_keys import ClockCache


class Key:
    seen: int

    def __init__(self, name: Any = None) -> None:
        self.name = name
        self.looks = self.used = 0
        self.is_needed = False

    def __repr__(self) -> str:
        return f"<Key {self.name}>"

    @property
    def tokens(self) -> Any:
        return self

    @property
    def uses(self) -> int:
        self.looks += 1
        return self.used


class House:
    """Keys in a ring, and those that had to leave."""

    def __init__(self, most: int) -> None:
        self.ring: Any = ClockCache(most)
        self.gone: list[Key] = []

    def add(self, name: Any = None, *, used: int = 1) -> Key:
        key = Key(name)
        self.ring.enter(key, self.evict)
        key.used = used
        return key

    def evict(self, key: Key) -> bool:
        if key.is_needed:
            return False
        self.gone.append(key)
        self.ring.leave(key)
        return True

    @property
    def keys(self) -> list[Key]:
        return [key for key in self.ring._places if key.seen >= 0]


@pytest.mark.parametrize("most", [1, 2, 16, 100])
def test_there_are_never_more_than_there_may_be(most: int) -> None:
    house = House(most)
    for i in range(500):
        house.add(i)
        assert len(house.ring) == min(i + 1, most)
    assert len(house.gone) == len(set(house.gone)) == 500 - most


def test_who_is_used_stays_while_a_flood_passes() -> None:
    """Wherever in the order of arrival it came; and of the others the older ones leave first, about."""
    house = House(100)
    hot = []
    for i in range(5000):
        if i in (0, 17, 99, 100, 1234):
            hot.append(house.add(f"hot {i}"))
        house.add(i)
        for key in hot:
            key.used += 1
    assert not set(hot) & set(house.gone)
    assert min(key.name for key in house.keys if key not in hot) > 5000 - 4 * 100


def test_who_was_not_used_since_there_was_room_leaves_first() -> None:
    """The hand moves with each newcomer, also while there is room."""
    house = House(10)
    for i in range(5):
        house.add(f"of before {i}")
    for i in range(6):
        house.add(i, used=0)
    assert ["of before" in str(key.name) for key in house.gone] == [True]


def test_what_was_too_many_leaves_as_soon_as_it_may() -> None:
    house = House(10)
    needed = [house.add(i) for i in range(10)]
    for key in needed:
        key.is_needed = True
    for _ in range(90):
        house.add().is_needed = True
    for key in list(house.keys):
        key.is_needed = False
    for _ in range(20):
        house.add()
    assert len(house.ring) == 10


def test_who_comes_looks_at_a_few_only() -> None:
    """Though all are used, or all are needed."""
    house = House(10_000)
    for i in range(10_000):
        house.add(i).is_needed = i % 2 == 0
    for _ in range(100):
        for key in house.keys:
            key.used += 1
        before = sum(key.looks for key in house.keys)
        house.add()
        assert sum(key.looks for key in house.keys) - before <= 20


@given(st.integers(1, 8), st.lists(st.tuples(st.sampled_from(["add", "use", "need", "leave"]), st.integers(0, 20))))
def test_whatever_happens_it_knows_who_is_there(most: int, steps: list[tuple[str, int]]) -> None:
    house, all_ = House(most), [Key()]
    left: set[Key] = {all_[0]}
    for step, number in steps:
        key = all_[number % len(all_)]
        if step == "add":
            all_.append(house.add())
        elif step == "use":
            key.used += 1
        elif step == "need":
            key.is_needed = not key.is_needed
        elif key not in left and key not in house.gone:
            house.ring.leave(key)
            left.add(key)
        there = set(house.keys)
        assert there == set(all_) - set(house.gone) - left
        assert there or not house.ring._places, "what is gone is not kept"
        assert len(there) == len(house.ring)
        assert len(there) <= max(most, sum(each.is_needed for each in there) + 1, len(there) * (step != "add"))


def test_places_of_who_has_left_do_not_pile_up() -> None:
    house = House(1000)
    for _ in range(20):
        for key in [house.add() for _ in range(500)]:
            house.ring.leave(key)
        assert len(house.ring._places) == 0
    stays = [house.add() for _ in range(10)]
    for _ in range(5000):
        house.ring.leave(house.add())
        assert len(house.ring._places) <= 40
    assert set(house.keys) == set(stays)


def test_places_go_though_nobody_comes_any_more() -> None:
    house = House(10_000)
    keys = [house.add() for _ in range(2000)]
    for key in keys[:-10]:
        house.ring.leave(key)
    assert len(house.ring._places) <= 100

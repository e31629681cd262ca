"""All keys are counted by policy, each once: those in use, those that retire meanwhile, and those that are gone."""

import sys
from collections.abc import Callable
from operator import add
from types import FrameType
from typing import Any

import pytest

from batchlimit import Quota
from batchlimit.base.blocking import OwnLock
from batchlimit.base.waiting import NO_WAIT
from batchlimit.keyspace.census import SIZE, BaseKeyEntry, Census, Page, Tallies, done_of
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.lookup import MOST, OTHER, Policies, policies_of, quota_rule
from batchlimit.reservoir.reservoir import Reservoir
from batchlimit.reservoir.statistics import PolicyStatistics
from batchlimit.reservoir.waiter import Admit, Refuse, Waiter
from tests.opcodes import trace_opcodes
from tests.reservoir.entry import DEAD, HUNDRED, Entry
from tests.reservoir.world import Waking, made

FIVE = Quota(5.0, 5)
POLICIES = Policies({"user:*": HUNDRED, "*": FIVE})


class TaskKey(BaseKeyEntry):
    """A key entry of an event loop, which no lock keeps out."""

    def __init__(self, reservoir: Reservoir) -> None:
        self.reservoir = reservoir


class Key(TaskKey):
    """A key entry of threads."""

    def __init__(self, reservoir: Reservoir) -> None:
        super().__init__(reservoir)
        self.lock: OwnLock = OwnLock()


class Broken(Key):
    """A key entry at which a signal handler raises, while it is counted."""

    def __init__(self) -> None:
        super().__init__(spent())
        self.reservoir.tokens.refused = 1  # so its figures are looked at under the lock
        del self.reservoir.state.timed_out


def nobody_else() -> None:
    pass


def taken(tallies: Tallies, *keys: BaseKeyEntry) -> Census:
    for key in keys:
        tallies.enter(key)
    census = tallies.census()
    census.take(nobody_else)
    return census


def count_spend(tallies: Tallies, quota: Quota, tokens: int, *, is_lost: bool) -> None:
    row = tallies.spends[tallies.policies.number(quota)]
    row[:] = map(add, row, (1, tokens, is_lost))


# Policies


def test_an_entry_named_other_is_counted_with_those_that_are_too_many() -> None:
    policies = Policies({"other": FIVE, "*": HUNDRED})
    tallies = Tallies(policies)
    tallies.renumber(Policies({"other": FIVE}))
    count_spend(tallies, FIVE, 3, is_lost=False)
    assert taken(tallies).policies[OTHER].admitted == 3
    assert policies.names == ("*", OTHER)


def test_each_entry_of_a_mapping_is_a_policy_though_its_quota_is_that_of_another() -> None:
    one = Quota(5.0, 5)
    rule = quota_rule({"a:*": one, "b:*": one, "*": "5/s"})
    policies = policies_of(rule)
    assert policies.names == ("a:*", "b:*", "*", OTHER)
    assert [policies.names[policies.number(rule(key))] for key in ("a:1", "b:1", "c")] == ["a:*", "b:*", "*"]


def test_one_quota_or_a_function_is_one_policy() -> None:
    for rule in (quota_rule("5/s"), quota_rule(lambda _key: "5/s"), lambda _key: HUNDRED):
        assert policies_of(rule).names == ("*",)
        assert policies_of(rule).number(rule("any")) == 0


def test_policies_beyond_two_hundred_are_other() -> None:
    rule = quota_rule({f"{number}:*": "5/s" for number in range(1000)})
    policies = policies_of(rule)
    assert len(policies.names) == MOST + 1
    assert policies.names[policies.number(rule("999:a"))] == OTHER


# A census


def plain() -> Reservoir:
    return Entry(tokens=10).reservoir


def spent() -> Reservoir:
    entry = Entry(tokens=10)
    entry.reservoir.tokens.take(3)
    return entry.reservoir


def refused() -> Reservoir:
    entry = Entry()
    entry.refuse(entry.fetch(entry.join(7, NO_WAIT)))
    assert entry.reservoir.admission.deny(7, 0.1)
    return entry.reservoir


def timed_out() -> Reservoir:
    entry = Entry()
    waiter = entry.join(7, 0.2)
    entry.refuse(entry.fetch(waiter), retry_after=5.0)
    assert isinstance(waiter.verdict, Refuse)
    return entry.reservoir


def waiting() -> Reservoir:
    entry = Entry()
    for cost in (3, 4):
        entry.join(cost)
    return entry.reservoir


def waiting_for_more() -> Reservoir:
    entry = Entry(tokens=5)
    entry.join(7)
    return entry.reservoir


def owing() -> Reservoir:
    entry = Entry(tokens=5)
    entry.reservoir.lifecycle.debit(50, 0.0)
    entry.join(3)
    return entry.reservoir


def lent() -> Reservoir:
    entry = Entry(policy=FailurePolicy("open"))
    waiter = entry.join(3)
    entry.reservoir.failed(entry.fetch(waiter), DEAD, 0.0)
    assert isinstance(waiter.verdict, Admit)
    return entry.reservoir


def lost() -> Reservoir:
    entry = Entry(tokens=10)
    entry.grant(entry.fetch(entry.join(20)), tokens=30, epoch=99)
    return entry.reservoir


def granted_for_later() -> Reservoir:
    entry = Entry()
    entry.grant(entry.fetch(entry.join(3)), tokens=10, starts_in=0.5)
    return entry.reservoir


def nearly_a_fifth_left() -> Reservoir:
    entry = Entry()
    entry.grant(entry.fetch(entry.join(1)), tokens=1, level=19)
    return entry.reservoir


KEYS: list[Callable[[], Reservoir]] = [
    plain, spent, refused, timed_out, waiting, waiting_for_more, owing, lent, lost, granted_for_later,
    nearly_a_fifth_left,
]  # fmt: skip


@pytest.mark.parametrize("kind", [Key, TaskKey])
@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.__name__)
def test_a_census_counts_what_the_figures_of_a_key_say(
    key: Callable[[], Reservoir], kind: Callable[[Reservoir], BaseKeyEntry]
) -> None:
    reservoir = key()
    assert taken(Tallies(Policies()), kind(reservoir)).total == reservoir.state.figures()


def test_the_keys_of_a_census_are_added_up_by_policy() -> None:
    users, others = [spent(), refused(), timed_out()], made(FIVE)
    found = taken(Tallies(POLICIES), *map(Key, [*users, others])).policies
    assert list(found) == ["user:*", "*"]
    assert found["user:*"] == PolicyStatistics(3, 2, admitted=4, from_store=1, refused=21, by_store=7, timed_out=7)
    assert found["*"] == PolicyStatistics(keys=1)


def test_of_a_key_that_is_gone_counts_stay_and_what_says_how_much_is_here_goes() -> None:
    told = done_of(tuple(range(1, 15)))
    assert told == (1, 2, 3, 4, 5, 6, 0, 0, 0, 10, 11, 12, 13, 0)


class Leaving(dict[Any, Any]):
    """The entries of a page, of which one leaves while they are copied, as long as there are some to leave."""

    def __init__(self, page: Page, keys: list[Key], leaving: int) -> None:
        super().__init__()
        self.page, self.here, self.leaving, self.copies = page, keys, leaving, 0

    def copy(self) -> dict[Any, Any]:
        self.copies += 1
        copied = super().copy()
        if self.copies <= self.leaving:
            self.page.leave(self.here.pop())
        return copied


@pytest.mark.parametrize(("leaving", "copies"), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 4)])
def test_a_page_of_which_entries_leave_is_looked_at_again_three_times_at_most(leaving: int, copies: int) -> None:
    page, keys = Page(0), [Key(plain()) for _ in range(6)]
    page._entries = entries = Leaving(page, keys, leaving)
    for key in keys:
        page.enter(key)
    page.leave(keys.pop())
    found, past = page.look()
    assert entries.copies == copies
    assert len(found) + past[0] == 6 or leaving > 3, "each key is counted once"


def test_every_key_is_counted_once_though_keys_come_and_go_while_pages_are_counted() -> None:
    tallies, keys = Tallies(Policies()), [Key(spent()) for _ in range(2 * SIZE + 1)]
    for key in keys:
        tallies.enter(key)
    census, newcomers = tallies.census(), list[Key]()

    def come_and_go() -> None:
        for key in (keys.pop(0), keys.pop()):
            key.reservoir.lifecycle.evict()
            tallies.leave(key)
        newcomers.append(Key(spent()))
        tallies.enter(newcomers[-1])

    census.take(come_and_go)
    all_that_were = 4 * (2 * SIZE + 1)
    assert all_that_were <= census.total[0] <= taken(tallies).total[0] == all_that_were + 4 * len(newcomers)
    assert newcomers


def test_a_place_that_got_free_is_taken_before_there_is_another_page() -> None:
    tallies, keys = Tallies(POLICIES), [Key(plain()) for _ in range(SIZE)]
    taken(tallies, *keys)
    tallies.leave(keys[7])
    newcomer = Key(plain())
    tallies.enter(newcomer)
    assert newcomer.page is keys[0].page
    tallies.leave(keys[7])
    late = Key(plain())
    tallies.enter(late)
    assert late.page is not keys[0].page, "who has left leaves no second place"
    other = Key(made(FIVE))
    tallies.enter(other)
    assert other.page is not keys[0].page


def test_no_page_has_more_than_fits_though_several_have_room() -> None:
    tallies, keys = Tallies(Policies()), [Key(plain()) for _ in range(2 * SIZE)]
    taken(tallies, *keys)
    for left in (keys[0], keys[-1]):
        tallies.leave(left)
    taken(tallies, *[Key(plain()) for _ in range(3)])
    assert sorted(map(len, tallies.pages)) == [1, SIZE, SIZE]


class Watched:
    """A lock that notes whether a count asked for it."""

    def __init__(self) -> None:
        self.is_asked_for = False

    def __enter__(self) -> bool:
        self.is_asked_for = True
        return True

    def __exit__(self, *_: object) -> None:
        pass

    def acquire(self) -> bool:
        return self.__enter__()

    def release(self) -> None:
        pass

    def _is_owned(self) -> bool:
        return False


def singly(key: Key) -> None:
    key.reservoir.tokens.take(1)


def severally(key: Key) -> None:
    key.reservoir.tokens.take(3)


def set_aside(key: Key) -> None:
    key.reservoir.state.lease.reserve_for([None])


def set_free(key: Key) -> None:
    key.reservoir.state.lease.reserve_for([None])
    key.reservoir.state.lease.reserve_for([])


def thrown_away(key: Key) -> None:
    key.reservoir.state.lease.take_all()


def served(key: Key) -> None:
    key.reservoir.state.lease.reserve_for([None])
    key.reservoir.state.lease.serve(Waiter(2, NO_WAIT, Waking()))


@pytest.mark.parametrize("is_laid_out", [True, False])
@pytest.mark.parametrize("move", [singly, severally, set_aside, set_free, thrown_away, served])
def test_between_any_two_steps_of_a_move_a_count_has_what_was_spent_or_waits_for_the_lock(
    move: Callable[[Key], None], is_laid_out: bool
) -> None:
    key, counts = Key(spent()), list[tuple[bool, int, int]]()
    if is_laid_out:
        key.reservoir.tokens.take(1)
    tallies = Tallies(Policies())
    before = taken(tallies, key).total

    def look(frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode" and "reservoir" in frame.f_code.co_filename:
            sys.settrace(None)
            key.lock = lock = Watched()  # type: ignore[assignment]
            total = taken(tallies).total
            counts.append((lock.is_asked_for, total[0], total[0] - total[9]))
            sys.settrace(look)
        return look

    trace_opcodes(look)
    try:
        move(key)
    finally:
        sys.settrace(None)
    after = taken(tallies).total
    assert len(counts) > 5
    assert all(waits or before[0] <= done <= after[0] for waits, done, _ in counts)
    assert all(waits or own <= after[0] - after[9] for waits, _, own in counts)
    assert not all(waits for waits, _, _ in counts)


def test_a_count_beside_a_loop_lets_it_end_its_move() -> None:
    tallies, key = Tallies(Policies()), TaskKey(spent())
    tallies.enter(key)
    tokens, turns = key.reservoir.tokens, list[int]()
    tokens.free, tokens.is_moving = tokens.free - 5, True

    def end() -> None:
        turns.append(1)
        if len(turns) == 3:
            tokens.free, tokens.is_moving = tokens.free + 5, False

    census = tallies.census()
    census.take(end)
    assert (len(turns), census.total[0]) == (3, 4)


@pytest.mark.parametrize(("kind", "waits"), [(TaskKey, 100), (Key, 0)], ids=["of a loop", "under a lock"])
def test_a_count_does_not_wait_for_ever_for_a_move_that_was_interrupted(
    kind: Callable[[Reservoir], BaseKeyEntry], waits: int
) -> None:
    tallies, key, turns = Tallies(Policies()), kind(spent()), list[int]()
    key.reservoir.tokens.is_moving = True
    tallies.enter(key)
    census = tallies.census()
    census.take(lambda: turns.append(1))
    assert (census.total[0], len(turns)) == (4, waits)


def test_a_count_that_is_interrupted_holds_no_lock() -> None:
    tallies, broken = Tallies(Policies()), Broken()
    with pytest.raises(AttributeError):
        taken(tallies, Key(spent()), broken)
    assert not broken.lock._is_owned()


HALF = SIZE // 2


@pytest.mark.parametrize(
    ("sizes", "turns"),
    [((HALF, HALF), 0), ((HALF, HALF + 1), 1), ((HALF + 1, HALF, HALF), 1), ((HALF + 1, HALF, HALF + 1), 2)],
    ids=str,
)
def test_others_have_their_turn_whenever_as_many_were_counted_as_a_page_has_at_most(
    sizes: tuple[int, ...], turns: int
) -> None:
    quotas, found = [Quota(5.0, 5) for _ in sizes], list[int]()
    tallies = Tallies(Policies({f"{number}:*": quota for number, quota in enumerate(quotas)}))
    for quota, size in zip(quotas, sizes, strict=True):
        for _ in range(size):
            tallies.enter(Key(made(quota)))
    tallies.census().take(lambda: found.append(1))
    assert len(found) == turns


def test_a_refusal_in_place_of_the_store_is_memorys() -> None:
    entry = Entry(policy=FailurePolicy.local(instances=1))
    entry.reservoir.failed(entry.fetch(entry.join(100, NO_WAIT)), DEAD, 0.0)
    waiter = entry.join(7, NO_WAIT)
    entry.reservoir.admission.refuse(waiter, 0.0)
    found = taken(Tallies(Policies()), Key(entry.reservoir)).policies["*"]
    assert (found.refused, found.by_store) == (7, 0)


def test_what_keys_did_by_a_name_that_is_gone_is_counted_as_other() -> None:
    tallies, key = Tallies(POLICIES), Key(spent())
    tallies.enter(key)
    count_spend(tallies, HUNDRED, 3, is_lost=False)
    count_spend(tallies, FIVE, 2, is_lost=True)
    tallies.renumber(Policies({"new:*": Quota(5.0, 5), "*": FIVE, "newer:*": Quota(5.0, 5)}))
    found = taken(tallies)
    assert {name: each.admitted for name, each in found.policies.items()} == {
        "new:*": 0, "*": 2, "newer:*": 0, OTHER: 4 + 3,
    }  # fmt: skip
    assert (found.policies[OTHER].keys, found.total[2], found.total[4]) == (1, 1 + 2, 1)


def test_who_waited_by_names_that_are_gone_stays_counted() -> None:
    tallies = Tallies(POLICIES)
    for quota, seconds in ((HUNDRED, 0.2), (FIVE, 0.3), (Quota(5.0, 5), 0.4)):
        tallies.waits(quota).add(seconds)
    count_spend(tallies, HUNDRED, 3, is_lost=False)
    tallies.renumber(Policies({"new:*": Quota(5.0, 5)}))
    found = taken(tallies).policies
    assert {name: each.waits.total for name, each in found.items()} == {"new:*": 0, OTHER: 3}


def test_a_page_is_full_also_by_entries_that_are_counted_by_another_policy_now() -> None:
    tallies, keys = Tallies(POLICIES), [Key(plain()) for _ in range(SIZE)]
    mover, later = Key(made(FIVE)), Key(plain())
    for key in (*keys[1:], mover):
        tallies.enter(key)
    tallies.move(mover, HUNDRED)
    tallies.enter(later)
    assert mover.page is keys[1].page is not later.page
    tallies.move(mover, FIVE)
    tallies.enter(keys[0])
    assert [len(page) for page in tallies.pages if page is keys[1].page] == [SIZE - 1 + (keys[0].page is keys[1].page)]

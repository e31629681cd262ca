"""What only the store in this process can show, for its clock is ours: what time does to a bucket."""

import threading
from collections.abc import Callable
from functools import partial
from itertools import count, pairwise

import pytest

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level, Spend
from batchlimit.quota.quota import Quota
from batchlimit.stores.memory import MemoryStore
from tests.opcodes import Signals
from tests.sync.stage import Clock

KEY = "tenant:42"
TEN = Quota(10.0, 10)  # full again in a second, leases of 0.4 s


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(clock)


def _take(store: MemoryStore, seq: int, n: int, *, held: int = 0) -> Grant:
    return store.take(KEY, TEN, Ask("a", seq, need=n, queued=n, want=n, held=held))


def _spend(store: MemoryStore, seq: int, n: int) -> Grant:
    """Take n tokens and spend them; reported by a second ask, for until then they would hold the refill up."""
    grant = _take(store, 2 * seq, n)
    _take(store, 2 * seq + 1, 0)
    return grant


def test_a_bucket_refills_with_time(store: MemoryStore, clock: Clock) -> None:
    timeline = [  # at, need, granted, level
        (0.0, 10, 10, 0),
        (0.11, 2, 0, 1),
        (0.21, 2, 2, 0),
        (0.26, 1, 0, 0),
        (0.31, 1, 1, 0),
        (0.92, 1, 1, 5),
        (5.0, 1, 1, 9),
    ]
    for seq, (at, need, granted, level) in enumerate(timeline):
        clock.now = 1000.0 + at
        grant = _spend(store, seq, need)
        assert (at, grant.granted, grant.level) == (at, granted, level)


def test_a_bucket_that_was_forgotten_is_full_and_has_a_new_epoch(store: MemoryStore, clock: Clock) -> None:
    before = _take(store, 1, 10)
    clock.now += 60.0
    after = _take(store, 2, 5)
    assert (after.granted, after.kept, after.level) == (5, 0, 5)
    assert after.epoch != before.epoch


def test_a_bucket_that_is_new_to_the_instance_begins_full(store: MemoryStore) -> None:
    ask = Ask("a", 1, need=10, queued=10, want=10, fill=0.0)
    assert store.take(KEY, TEN, ask).granted == 10


@pytest.mark.usefixtures("restless")
def test_no_thread_sees_a_bucket_that_another_is_changing(store: MemoryStore) -> None:
    threads = [threading.Thread(target=_take_and_return, args=[store, f"instance-{i}"]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Level(*store.peek(KEY, TEN)[:3]) == Level(level=10, outstanding=0, active_instances=0)


def _take_and_return(store: MemoryStore, instance: str) -> None:
    for seq in range(0, 2000, 2):
        granted = store.take(KEY, TEN, Ask(instance, seq, need=1, queued=1, want=1)).granted
        store.give_back(KEY, TEN, GiveBack(instance, seq + 1, tokens=granted))


def test_buckets_that_are_full_again_do_not_pile_up(store: MemoryStore, clock: Clock) -> None:
    for i in range(20_000):
        clock.now += 0.1
        store.take(f"key-{i}", TEN, Ask("a", 1, need=1, queued=1, want=1))
    assert len(store._buckets) < 2000


def test_a_forked_child_is_not_locked_out_by_a_thread_of_its_parent(store: MemoryStore) -> None:
    with store._lock:
        store.after_fork()
        thread = threading.Thread(target=store.peek, args=[KEY, TEN], daemon=True)
        thread.start()
        thread.join(10.0)
        assert not thread.is_alive()


def _flood(store: MemoryStore, number: int) -> None:
    for i in range(number):
        store.take(f"invented-{i}", TEN, Ask("a", 1, need=1, queued=1, want=1))


def test_after_a_flood_of_keys_no_ask_forgets_many_at_once_and_soon_all_are_forgotten(
    store: MemoryStore, clock: Clock
) -> None:
    _flood(store, 20_000)
    clock.now += 60.0
    kept = [len(store._buckets)]
    while kept[-1] > 10:
        clock.now += 1.0
        _take(store, len(kept), 1)
        kept.append(len(store._buckets))
        assert len(kept) < 150
    assert max(before - after for before, after in pairwise(kept)) <= 300


def test_of_a_lasting_flood_no_more_are_kept_than_twice_those_that_are_not_full(
    store: MemoryStore, clock: Clock
) -> None:
    lasts = 6.5
    """Seconds in which a bucket of which one token is leased is full, and then forgotten."""
    for i in range(20_000):
        clock.now += 0.01
        store.take(f"key-{i}", TEN, Ask("a", 1, need=1, queued=1, want=1))
    assert len(store._buckets) <= 2 * lasts / 0.01


# A signal handler that raises

SLOW = Quota(0.5, 10)
OPERATIONS: dict[str, tuple[float, Callable[[MemoryStore], object]]] = {
    "take": (0.0, lambda store: store.take(KEY, SLOW, Ask("a", 2, 1, 1, 3, held=2))),
    "take of another": (0.0, lambda store: store.take(KEY, SLOW, Ask("b", 1, 2, 2, 5))),
    "take after all": (11.0, lambda store: store.take(KEY, SLOW, Ask("a", 2, 1, 1, 3))),
    "spend beside a lease": (0.0, lambda store: store.spend([[Spend(KEY, SLOW, 2)]])),
    "spend after all leases": (11.0, lambda store: store.spend([[Spend(KEY, SLOW, 2)]])),
    "spend of two": (11.0, lambda store: store.spend([[Spend(KEY, SLOW, 2), Spend("other", SLOW, 1)]])),
    "give back": (0.0, lambda store: store.give_back(KEY, SLOW, GiveBack("a", 2, 3))),
    "peek": (0.0, lambda store: store.peek(KEY, SLOW)),
    "reset": (0.0, lambda store: store.reset(KEY, forget=False)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_a_signal_ends_makes_no_token_and_none_is_gone_for_ever(name: str) -> None:
    """A spend that looked at a leased bucket could leave it eight seconds ahead, which cost all that flows in then."""
    later, operation = OPERATIONS[name]
    for place in count(1):
        clock = Clock()
        store, signals = MemoryStore(clock), Signals(place)
        assert store.take(KEY, SLOW, Ask("a", 1, 4, 4, 4)).granted == 4
        _flood(store, 9)
        clock.now += later
        before = store.peek(KEY, SLOW)
        signals.run(partial(operation, store))
        after, where = store.peek(KEY, SLOW), signals.raised
        assert after.level + (0 if later else after.outstanding) <= 10, where  # leases may be over
        if not later and name not in ("give back", "reset"):
            assert before.level - 5 <= after.level <= before.level, where
        for seq in (1, 2):
            clock.now += 30.0
            assert store.take(KEY, SLOW, Ask("c", seq, 10, 10, 10)).granted == 10, where
        if not where:
            break
    assert place > 10

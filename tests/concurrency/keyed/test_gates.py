"""The gates of a keyed limiter: a key never has two, memory is bounded, and what was counted stays counted."""

import gc
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from batchlimit import ConcurrencyLimited, LimiterClosed, Queue
from batchlimit.concurrency import Keyed, KeyedConcurrencyLimiter, Permit, Sample
from batchlimit.concurrency.keyed.permits import entering
from batchlimit.laws import AIMD, Fixed, Gitaly, Vegas
from tests.apis.test_concurrency import SECOND, Clock
from tests.sync.stage import in_child


def keys_of(limiter: KeyedConcurrencyLimiter) -> int:
    return limiter.statistics().patterns["*"].keys


def test_a_key_with_a_permit_keeps_its_gate_however_many_others_come() -> None:
    limiter = KeyedConcurrencyLimiter({"*": 1}, max_keys=10)
    with limiter.acquire("busy"):
        for number in range(100):
            limiter.acquire(f"key {number}").success()
        with pytest.raises(ConcurrencyLimited):
            limiter.acquire("busy")
    limiter.acquire("busy").success()


def test_keys_in_memory_are_bounded_and_their_counts_stay() -> None:
    limiter = KeyedConcurrencyLimiter({"*": 1}, max_keys=10)
    for number in range(1000):
        limiter.acquire(f"key {number}").success()
    assert keys_of(limiter) == 10
    assert limiter.statistics().patterns["*"].succeeded == 1000


def test_a_key_in_use_outlives_ones_that_were_used_once() -> None:
    limiter = KeyedConcurrencyLimiter({"*": Keyed(Counting)}, max_keys=10)
    for number in range(100):
        limiter.acquire("hot").success()
        limiter.acquire(f"key {number}").success()
    law: Any = limiter._gates.find("hot").law
    assert law.seen == 100


class Busy:
    """A watcher that always sees something."""

    name = "busy"

    def poll(self) -> str:
        return "busy"


@pytest.mark.parametrize("limit", [5, Keyed(5)], ids=["bare", "keyed"])
def test_what_watchers_see_changes_no_fixed_limit_and_is_no_fault(
    limit: int | Keyed, caplog: pytest.LogCaptureFixture
) -> None:
    with KeyedConcurrencyLimiter({"*": limit}, watchers=[Busy()], every=1e6) as limiter, limiter.acquire("a"):
        limiter._gates.poll()
        limiter._gates.end_period(("busy",))
        assert limiter._gates.find("a").gate.limit == 5
    assert caplog.text == ""


class Counting(Fixed):
    """A law that counts its samples."""

    def __init__(self) -> None:
        super().__init__(10)
        self.seen = 0

    def update(self, sample: Sample) -> int:
        self.seen += 1
        return self.limit


def test_idle_keys_leave_when_others_come() -> None:
    clock = Clock()
    limiter = KeyedConcurrencyLimiter({"*": 1}, idle_after=60, clock=clock)
    for number in range(100):
        limiter.acquire(f"key {number}").success()
    assert keys_of(limiter) == 100
    for number in range(200):  # a first look sees that a key was used, a second one that it was not used since
        clock.now += 60 * SECOND
        limiter.acquire(f"late {number}").success()
    assert keys_of(limiter) < 10


def test_what_is_under_way_and_refused_is_counted_by_pattern() -> None:
    limiter = KeyedConcurrencyLimiter({"repo:*": 1, "*": 5})
    with limiter.acquire("repo:1"), limiter.acquire("ann"), limiter.acquire("bob"):
        with pytest.raises(ConcurrencyLimited) as refusal:
            limiter.acquire("repo:1")
        assert refusal.value.key == "repo:1"
        assert str(refusal.value) == "refused (limit) at 'repo:1': 1 calls are under way, the limit is 1"
        seen = limiter.statistics().patterns
        assert (seen["repo:*"].in_flight, seen["repo:*"].refused, seen["*"].in_flight) == (1, {"limit": 1}, 2)
        assert [(key.key, key.limit) for key in limiter.busiest(2)] == [("ann", 5), ("bob", 5)]
    assert limiter.busiest() == []


def test_a_permit_that_is_collected_amid_a_shared_law_changes_nothing_in_its_work() -> None:
    class Collecting(Counting):
        """A law during whose work a permit of another key ends."""

        def update(self, sample: Sample) -> int:
            assert not self.is_busy
            self.is_busy = True
            if held:
                held.pop().success()
            self.is_busy = False
            return super().update(sample)

        is_busy = False

    law = Collecting()
    limiter = KeyedConcurrencyLimiter({"*": Keyed(lambda: law, shared=True)})
    held = [limiter.acquire("a")]
    limiter.acquire("b").success()
    assert law.seen == 1
    assert limiter.statistics().patterns["*"].succeeded == 2


def test_a_shared_law_learns_nothing_while_it_is_read() -> None:
    """Else its baselines would change under whoever goes through them, and a scrape would fail."""

    class Read(Counting):
        """A law while which is read a permit of another key ends: in this thread, since others wait for its lock."""

        @property
        def baselines(self) -> dict[str, float]:
            (shared,) = limiter._gates._shared.values()
            assert shared._lock._is_owned()  # type: ignore[attr-defined]
            if held:
                held.pop().success()
            return {"": float(self.seen)}

    law = Read()
    limiter = KeyedConcurrencyLimiter({"*": Keyed(lambda: law, shared=True)})
    held = [limiter.acquire("a")]
    with limiter.acquire("b"):
        assert limiter.busiest()[0].baselines == {"": 0.0}
    assert law.seen == 1, "by the permit of b"


def test_a_closed_limiter_lets_nobody_enter_and_calls_under_way_end() -> None:
    limiter = KeyedConcurrencyLimiter({"*": 2})
    with limiter.acquire("a"):
        limiter.close()
        for call in (lambda: limiter.acquire("a"), lambda: limiter.acquire("b"), lambda: limiter.acquire_all(["a"])):
            with pytest.raises(LimiterClosed):
                call()
    assert limiter.statistics().patterns["*"].succeeded == 1


def test_a_dropped_limiter_leaves_nothing_behind() -> None:
    limiter = KeyedConcurrencyLimiter({"*": 2})
    gates = limiter._gates
    limiter.acquire("a").success()
    gate = limiter._gates.find("a")
    del limiter, gates
    alone = object()
    assert sys.getrefcount(gate) == sys.getrefcount(alone)
    gc.collect()


def test_a_child_holds_nothing_of_its_parents_calls() -> None:
    limiter = KeyedConcurrencyLimiter({"*": 1})
    with limiter.acquire("a"):
        assert in_child(lambda: limiter.acquire("a").operation == "")
        with pytest.raises(ConcurrencyLimited):
            limiter.acquire("a")


def test_a_child_forgets_that_a_thread_of_its_parent_held_the_lock_of_the_table() -> None:
    limiter = KeyedConcurrencyLimiter({"*": 1})
    gates, held, forked = limiter._gates, threading.Event(), threading.Event()

    def hold() -> None:
        with gates._lock:
            held.set()
            forked.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    is_free = in_child(lambda: gates._lock.acquire(blocking=False))
    forked.set()
    holder.join()
    assert is_free


def test_who_listens_may_ask_why_for_keys_that_are_there_and_for_those_that_come() -> None:
    told: list[tuple[str, int, int, str]] = []
    limiter = KeyedConcurrencyLimiter({"*": Keyed(lambda: AIMD(initial=4, minimum=1, timeout=5))})
    limiter.acquire("early").success()
    limiter.listen(lambda *change: told.append(change), why=True)
    limiter.acquire("early").drop()
    limiter.acquire("late").drop()
    assert told == [("early", 4, 3, "loss"), ("late", 4, 3, "loss")]


def test_a_destructor_may_acquire_while_all_gates_hear_of_a_listener() -> None:
    class Collected:
        """Garbage that only the collector finds, and that acquires a key which is new."""

        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            found.append(limiter.acquire(f"late {len(found)}"))
            if len(found) < 20:
                Collected()

    limiter, found = KeyedConcurrencyLimiter({"*": 1}), list[Permit]()
    held = [limiter.acquire(f"key {number}") for number in range(1000)]
    before = gc.get_threshold()
    try:
        gc.set_threshold(0)
        Collected()
        gc.set_threshold(1)
        limiter.listen(print)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    for permit in held + found:
        permit.success()


def test_a_keyed_limiter_refuses_a_listener_that_is_no_function() -> None:
    with pytest.raises(TypeError, match="changed must be a function, not 5"):
        KeyedConcurrencyLimiter({"*": 1}).listen(5)  # type: ignore[call-overload]


@pytest.mark.parametrize("shared", [False, True])
def test_the_busiest_keys_tell_with_what_their_laws_compare(shared: bool) -> None:
    clock = Clock()
    limiter = KeyedConcurrencyLimiter({"*": Keyed(Vegas, shared=shared)}, clock=clock)
    with limiter.acquire("repo:1"):
        assert limiter.busiest()[0].baselines == {}
        clock.now += SECOND // 4
    with limiter.acquire("repo:1"):
        assert limiter.busiest()[0].baselines == {"": 0.25}


# In which order a caller acquires several keys, and what it holds where it waits, as a table


KEYS = ["user", "repo", "all"]


def test_a_caller_waits_with_empty_hands_at_first_and_in_the_common_order_in_the_end() -> None:
    full: set[str] = set()

    def gate(key: str) -> Any:
        return SimpleNamespace(key=key, wait=lambda: 1.0 if key in full else 0.0)

    gates: Any = SimpleNamespace(by_key={key: gate(key) for key in KEYS}, clock=lambda: 7)
    held: list[Any] = []
    waiting = entering(gates, KEYS, 5.0, _permit, "", held)
    for key, waits_at, holding in [("all", "all", []), ("user", "user", []), ("repo", "repo", ["user"])]:
        full.clear()
        full.add(key)
        assert (next(waiting), [each.key for each in held]) == (waits_at, holding)
    full.clear()
    assert list(waiting) == []
    assert [(each.key, each.start_ns) for each in held] == [("user", 7), ("repo", 7), ("all", 7)]


def _permit(gate: Any) -> Any:
    return SimpleNamespace(
        key=gate.key, ignore=lambda: None, start_ns=0, _enter=lambda *_: gate.wait(), _wait=lambda *_: gate.key
    )


# Which limit a key has, as a table; limits that cannot work are errors where the limiter is made


LIMITS: dict[str, int | Keyed] = {"*": 1, "repo:*": 2, "repo:42": 3, "repo:4*": 4, "user:[ab]*": Keyed(5)}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("repo:42", "repo:42"),
        ("repo:43", "repo:*"),
        ("repo:4", "repo:*"),
        ("user:ann", "user:[ab]*"),
        ("user:cid", "*"),
    ],
)
def test_the_key_itself_comes_first_then_patterns_in_their_order_and_last_the_star(key: str, name: str) -> None:
    limiter = KeyedConcurrencyLimiter(LIMITS)
    with limiter.acquire(key):
        assert limiter.statistics().patterns[name].in_flight == 1


def test_several_keys_are_acquired_in_the_order_of_the_limits() -> None:
    limiter = KeyedConcurrencyLimiter({"user:*": 1, "all": 1, "repo:*": 1})
    with limiter.acquire_all(["all", "repo:y", "user:x"]) as permits:
        assert permits.keys == ("user:x", "all", "repo:y")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({}, "limits need an entry"),
        ([("a", 1)], "limits must be like"),
        ({"a": 0}, r"a limit \(calls\) must be at least 1, not 0 \(the limit of 'a'\)"),
        ({"a": True}, "a whole number, or makes a law, not True"),
        ({"a": "5"}, "a whole number, or makes a law, not '5'"),
        ({"a": Fixed(5)}, "not Fixed.5.: give a function that makes one"),
        ({"a": lambda: 5}, r"law must be a law, like Fixed\(20\), not 5"),
        ({"a": Gitaly}, "needs watchers="),
        ({3: 5}, "names of type str"),
    ],
)
def test_limits_that_cannot_work(limits: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        KeyedConcurrencyLimiter(limits)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Keyed(5, queue=10),  # type: ignore[arg-type]
        lambda: KeyedConcurrencyLimiter({"*": 1}, max_keys=0),
        lambda: KeyedConcurrencyLimiter({"*": 1}, idle_after=-1),
        lambda: KeyedConcurrencyLimiter({"*": 1}, classify=3),  # type: ignore[arg-type]
    ],
)
def test_arguments_that_cannot_work(make: Callable[[], object]) -> None:
    with pytest.raises((TypeError, ValueError), match="must be"):
        make()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("other", "no limit for key 'other'; add a"),
        ("", "a key must not be empty"),
        (b"a", "a key must be a str, not b'a'; decode it first$"),
        (["a", "b"], r"a key must be a str, not \['a', 'b'\]; several go to `acquire_all`"),
    ],
)
def test_keys_that_have_no_limit(key: Any, message: str) -> None:
    limiter = KeyedConcurrencyLimiter({"repo:*": Keyed(lambda: AIMD(minimum=1, timeout=5), queue=Queue(5))})
    with pytest.raises((TypeError, ValueError), match=message):
        limiter.acquire(key)
    with pytest.raises((TypeError, ValueError), match=message):
        limiter.acquire_all(["repo:1", key])


@pytest.mark.parametrize(("keys", "message"), [([], "at least one key"), ("a", "several keys"), (["a", "a"], "twice")])
def test_several_keys_are_named_once_each(keys: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        KeyedConcurrencyLimiter({"*": 1}).acquire_all(keys)


def test_a_key_of_one_process_need_not_be_encodable() -> None:
    """It may be a file's name."""
    with KeyedConcurrencyLimiter({"*": 1}) as limiter, limiter.acquire("\udce9"):
        assert limiter.busiest()[0].key == "\udce9"

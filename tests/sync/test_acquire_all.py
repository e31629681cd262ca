"""Several keys of which nothing is known are asked for in one round trip; they are charged together all the same."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from batchlimit import Quota, RateLimited, RateLimiter, StoreUnavailable
from batchlimit.base.waiting import NO_WAIT
from batchlimit.batching import FixedBatch
from batchlimit.keyspace import several
from batchlimit.keyspace.several import FromMemory
from batchlimit.stores import MemoryStore
from batchlimit.sync import key_entry
from batchlimit.sync.waiting_thread import AcquireAll
from tests.sync.stage import DEADLINE, Clock, Gate, Piped, away, nothing, start

TEN = Quota(0.001, 10)
THREE = ["a", "b", "c"]


@pytest.fixture
def stage(clock: Clock) -> Piped:
    return Piped(MemoryStore(clock))


@pytest.fixture
def limiter(stage: Piped, clock: Clock, without_refresher: None) -> Iterator[RateLimiter]:
    with RateLimiter(stage, TEN, sizer=FixedBatch(1), clock=clock) as limiter:
        yield limiter


def levels(limiter: RateLimiter, keys: Sequence[str] = THREE) -> list[int]:
    return [limiter.peek(key).remaining for key in keys]


def test_keys_that_nobody_knows_are_asked_for_together(stage: Piped, limiter: RateLimiter) -> None:
    limiter.acquire_all(dict.fromkeys(THREE, 4))
    assert stage.together == [3]
    assert levels(limiter) == [6, 6, 6]
    assert limiter.statistics().calls == len(stage.asks) == 3
    assert limiter.statistics().admitted == 12


def test_not_too_many_at_a_time(stage: Piped, limiter: RateLimiter) -> None:
    limiter.acquire_all(dict.fromkeys((f"k{i}" for i in range(40)), 1))
    assert stage.together == [32, 8]
    assert limiter.statistics().admitted == 40


def test_one_is_asked_for_by_itself_and_what_is_here_not_at_all(
    stage: Piped, clock: Clock, without_refresher: None
) -> None:
    limiter = RateLimiter(stage, Quota(0.001, 12), sizer=FixedBatch(1), clock=clock)  # a smaller burst is not leased
    limiter.reserve("a", 4).settle(0)
    limiter.acquire_all(dict.fromkeys(["a", "b"], 4))
    assert stage.together == []
    assert len(stage.asks) == 2


def test_if_one_of_them_is_short_none_is_charged(stage: Piped, clock: Clock, limiter: RateLimiter) -> None:
    with RateLimiter(stage, TEN, clock=clock) as other:
        other.acquire("b", 10)
    with pytest.raises(RateLimited) as caught:
        limiter.acquire_all(dict.fromkeys(THREE, 4), timeout=0)
    assert caught.value.key == "b"
    assert stage.together == [3]
    assert levels(limiter) == [10, 0, 10]
    assert limiter.statistics().admitted == 0


def test_a_key_that_somebody_asks_for_just_now_is_waited_for(stage: Piped, limiter: RateLimiter) -> None:
    gate = stage.before = Gate()
    other = start(lambda: limiter.try_acquire("a"))
    gate.await_someone()
    stage.before = nothing
    all_three = start(lambda: limiter.acquire_all(dict.fromkeys(THREE, 4)))
    gate.open()
    assert other.result(DEADLINE)
    all_three.result(DEADLINE)
    assert levels(limiter) == [5, 6, 6]


def test_a_store_that_fails_charges_nothing_and_the_same_is_asked_again(stage: Piped, limiter: RateLimiter) -> None:
    stage.before_many = away
    with pytest.raises(StoreUnavailable):
        limiter.acquire_all(dict.fromkeys(THREE, 4))
    assert limiter.statistics().waiting == limiter.statistics().admitted == 0
    stage.before_many = nothing
    limiter.acquire_all(dict.fromkeys(THREE, 4))
    assert levels(limiter) == [6, 6, 6]


def test_an_interrupt_on_the_way_out_of_the_queues_leaves_no_tokens_there(
    stage: Piped, clock: Clock, limiter: RateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They had been held for nobody until their lease was over."""
    with RateLimiter(stage, TEN, clock=clock) as other:
        other.acquire("c", 10)
    leave = AcquireAll._leave

    def interrupted(_: AcquireAll) -> None:
        monkeypatch.setattr(AcquireAll, "_leave", leave)
        raise KeyboardInterrupt

    monkeypatch.setattr(AcquireAll, "_leave", interrupted)
    with pytest.raises(KeyboardInterrupt):
        limiter.acquire_all(dict.fromkeys(THREE, 4))
    assert limiter.try_acquire("a", 10)


def test_a_key_that_another_thread_emptied_meanwhile_charges_none(
    stage: Piped, clock: Clock, monkeypatch: pytest.MonkeyPatch, without_refresher: None
) -> None:
    taken, tried = several._take, list[str]()

    def last_was_faster(entry: key_entry.KeyEntry, cost: int) -> float:
        tried.append(entry.key)
        return NO_WAIT if entry.key == "b" else taken(entry, cost)

    with RateLimiter(stage, TEN, sizer=FixedBatch(10), clock=clock) as limiter:
        limiter.acquire_all({"a": 1, "b": 1})
        monkeypatch.setattr(several, "_take", last_was_faster)
        assert all(limiter.decide_all({"a": 1, "b": 1}).values())  # by the queue
        assert tried == ["a", "b"]
        assert [limiter.peek(key).remaining for key in ("a", "b")] == [8, 8]


class _Leaving(dict[str, key_entry.KeyEntry]):
    """Entries of which another thread removes each once it was found a second time."""

    def __init__(self, entries: Mapping[str, key_entry.KeyEntry]) -> None:
        super().__init__(entries)
        self._found = Counter[str]()

    def get(self, key: str, default: Any = None) -> Any:
        """Return the entry."""
        self._found[key] += 1
        return self.pop(key, default) if self._found[key] > 1 else super().get(key, default)


def test_a_key_that_leaves_while_memory_refuses_it_is_refused() -> None:
    """Its entry was looked up once more: a KeyError for the caller."""
    with RateLimiter(MemoryStore(), {"*": "1/hour"}) as limiter:
        assert [limiter.decide("a").allowed for _ in range(3)] == [True, False, False]
        memory = FromMemory(_Leaving(limiter._entries), limiter._clock)
        told = memory.decide({"a": 1})
        assert told is not None
        assert (told["a"].allowed, told["a"].source) == (False, "denied")

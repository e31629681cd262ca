"""What both keyed concurrency limiters do alike: who waits at which key, and several keys all or none.

A caller of several keys is told with a "+" between them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from batchlimit import ConcurrencyLimited, Partitions, Queue
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed, KeyedConcurrencyLimiter, Shedding
from batchlimit.concurrency.keyed.limits import PatternStatistics
from batchlimit.concurrency.queue import NO_QUEUE
from batchlimit.errors import WatcherUnavailable
from batchlimit.laws import AIMD, Gitaly, Knee, Settable
from batchlimit.watchers import MemoryWatcher
from tests.apis.callers import Caller, Callers, Tasks, Threads
from tests.apis.keyed import Told, enter, gitaly, round_of
from tests.concurrency.watchers.trees import write
from tests.sync.stage import DEADLINE, until

LIMITS: dict[str, int | Keyed] = {
    "user:*": Keyed(1, queue=Queue(10, max_wait=30)),
    "repo:*": Keyed(1, queue=Queue(10, max_wait=30)),
    "all": Keyed(2, queue=Queue(10, max_wait=30)),
    "strict:*": 1,
}
IMPATIENT = Keyed(1, queue=Queue(5, max_wait=0.001))


class OneOrSeveral:
    """A keyed limiter whose `acquire` takes several keys too."""

    def __init__(self, kind: Any, **options: Any) -> None:
        self.inner = kind(LIMITS, **options)

    def acquire(self, keys: str, *, timeout: float | None) -> Any:
        """A key that ends in "!" comes with a priority."""
        priority, keys = int(keys.endswith("!")), keys.removesuffix("!")
        if "+" in keys:
            return self.inner.acquire_all(keys.split("+"), timeout=timeout, priority=priority)
        return self.inner.acquire(keys, timeout=timeout, priority=priority)

    def close(self) -> Any:
        return self.inner.close()


@pytest.fixture(
    params=[(Threads, KeyedConcurrencyLimiter), (Tasks, AsyncKeyedConcurrencyLimiter)], ids=["threads", "asyncio"]
)
def callers(request: pytest.FixtureRequest) -> Iterator[Callers]:
    scene, kind = request.param
    with closing(scene(1, None, NO_QUEUE, make=partial(OneOrSeveral, kind))) as callers:
        yield callers


def come(callers: Callers, keys: str, timeout: float | None = None) -> Caller:
    caller = callers.call(keys, timeout)
    callers.settle()
    return caller


def go(callers: Callers, caller: Caller) -> None:
    caller.permit.success()
    callers.settle()


def in_flight(callers: Callers) -> dict[str, int]:
    seen: dict[str, int] = {}
    for key in callers.limiter.inner.busiest(100):
        if key.in_flight:
            seen[key.key] = key.in_flight
    return seen


def test_keys_do_not_know_of_each_other(callers: Callers) -> None:
    first, other, second = come(callers, "repo:1"), come(callers, "repo:2"), come(callers, "repo:1")
    assert (first.state, other.state, second.state) == ("held", "held", "waiting")
    go(callers, first)
    assert second.state == "held"
    go(callers, second)
    go(callers, other)


def test_without_a_queue_nobody_waits(callers: Callers) -> None:
    first = come(callers, "strict:1")
    assert come(callers, "strict:1").state == "limit"
    assert come(callers, "user:1+strict:1").state == "limit"
    assert in_flight(callers) == {"strict:1": 1}
    go(callers, first)


def test_several_keys_are_held_together_and_end_together(callers: Callers) -> None:
    both = come(callers, "all+repo:1+user:a")
    assert both.permit.keys == ("user:a", "repo:1", "all")
    assert in_flight(callers) == {"user:a": 1, "repo:1": 1, "all": 1}
    go(callers, both)
    assert in_flight(callers) == {}


def test_a_caller_that_waits_for_one_key_holds_no_place_at_another(callers: Callers) -> None:
    stuck = come(callers, "repo:1")
    waiting = come(callers, "user:a+repo:1")
    assert waiting.state == "waiting"
    assert in_flight(callers) == {"repo:1": 1}
    other = come(callers, "user:a+repo:2")  # the same user, another repository
    assert other.state == "held"
    go(callers, other)
    go(callers, stuck)
    assert waiting.state == "held"
    go(callers, waiting)


def test_after_three_rounds_a_caller_keeps_what_it_has(callers: Callers) -> None:
    user, repo = come(callers, "user:a"), come(callers, "repo:1")
    both = come(callers, "user:a+repo:1")
    go(callers, user)  # it gets the user, finds no room at the repository, gives the user back and waits there
    user = come(callers, "user:a")
    assert user.state == "held"
    go(callers, repo)  # the other way round
    repo = come(callers, "repo:1")
    assert repo.state == "held"
    go(callers, user)  # for the third time: now it keeps the user
    later = come(callers, "user:a")
    assert (both.state, later.state) == ("waiting", "waiting")
    go(callers, repo)
    assert both.state == "held"
    go(callers, both)
    assert later.state == "held"
    go(callers, later)


def test_a_timeout_covers_all_keys_together(callers: Callers) -> None:
    user, repo = come(callers, "user:a"), come(callers, "repo:1")
    both = come(callers, "user:a+repo:1", timeout=10)
    callers.pass_by(6)
    go(callers, user)
    assert both.state == "waiting"
    callers.pass_by(3)
    callers.settle()
    assert both.state == "waiting"
    callers.pass_by(2)
    callers.settle()
    assert both.state == "queue_timeout"
    assert in_flight(callers) == {"repo:1": 1}
    go(callers, repo)


def test_a_caller_that_is_interrupted_holds_nothing(callers: Callers) -> None:
    repo = come(callers, "repo:1")
    both = come(callers, "user:a+repo:1")
    callers.cancel(both)
    callers.settle()
    assert both.state in ("CancelledError", "Interrupted")
    assert in_flight(callers) == {"repo:1": 1}
    go(callers, repo)
    go(callers, come(callers, "user:a+repo:1"))


def test_a_timeout_of_0_takes_what_is_there(callers: Callers) -> None:
    user = come(callers, "user:a")
    assert come(callers, "all+user:a", timeout=0).state == "limit"
    assert in_flight(callers) == {"user:a": 1}
    go(callers, user)
    both = come(callers, "all+user:a", timeout=0)
    assert both.state == "held"
    go(callers, both)


def test_closing_ends_all_waits(callers: Callers) -> None:
    repo = come(callers, "repo:1")
    waiting = [come(callers, keys) for keys in ("repo:1", "user:a+repo:1")]
    callers.shut()
    callers.settle()
    assert [caller.state for caller in waiting] == ["LimiterClosed", "LimiterClosed"]
    go(callers, repo)


@pytest.mark.parametrize("important", ["repo:1!", "repo:1+all!"])
def test_a_higher_priority_is_next_at_a_key(callers: Callers, important: str) -> None:
    held, low, high = come(callers, "repo:1"), come(callers, "repo:1"), come(callers, important)
    go(callers, held)
    assert (low.state, high.state) == ("waiting", "held")
    go(callers, high)
    assert low.state == "held"
    go(callers, low)


@pytest.mark.parametrize(("key", "is_known"), [("repo:1", True), ("repo:2", False)])
def test_a_caller_that_waited_in_vain_is_told_when_to_come_back_by_its_key(kind: Any, key: str, is_known: bool) -> None:
    limiter = kind({"repo:*": IMPATIENT})
    enter(limiter, "repo:1").success()
    held = enter(limiter, key)
    with pytest.raises(ConcurrencyLimited) as refusal:
        enter(limiter, key)
    held.success()
    error = refusal.value
    assert (error.reason, error.key) == ("queue_timeout", key)
    assert (error.retry_after or 0) > 0 if is_known else error.retry_after is None


unlike: Any = {"live": 0.5}
HALF = Partitions({"live": 0.5}, strict=True, unknown="refuse")


def refused(limiter: Any, keys: str | Sequence[str], **options: Any) -> tuple[str, str | None]:
    with pytest.raises(ConcurrencyLimited) as caught:
        enter(limiter, keys, **options)
    return caught.value.reason, caught.value.key


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
def test_each_key_keeps_a_share_of_its_own(kind: Any, several: bool) -> None:
    limiter = kind({"repo:*": Keyed(2, partitions=HALF), "*": 9}, clock=lambda: 0)
    others = ["user:ann"] if several else []
    keys = {each: [each, *others] if several else each for each in ("repo:1", "repo:2")}
    for each in keys:
        enter(limiter, keys[each], partition="live").success()
    held = [enter(limiter, keys[each]) for each in keys]
    assert [refused(limiter, keys[each]) for each in keys] == [("partition", "repo:1"), ("partition", "repo:2")]
    held += [enter(limiter, keys[each], partition="live") for each in keys]
    assert refused(limiter, keys["repo:2"], partition="misspelt") == ("unknown_partition", "repo:2")
    busy = {each.key: {name: part.in_flight for name, part in each.partitions.items()} for each in limiter.busiest()}
    assert busy == {each: {"live": 1, "": 1} for each in keys} | {each: {} for each in others}
    assert limiter.statistics().patterns["repo:*"].unknown == 1
    for permit in held:
        permit.success()


@pytest.mark.parametrize("keys", ["repo:1", ["repo:1"]], ids=["one", "several"])
def test_a_caller_waits_for_a_place_of_its_partition(kind: Any, keys: Any) -> None:
    limiter = kind({"repo:*": Keyed(2, partitions=HALF, queue=Queue(5, max_wait=None))})
    held = [enter(limiter, "repo:1", partition=name) for name in ("live", "live")]

    def waiting() -> Any:
        permit = enter(limiter, keys, partition="live")
        (seen,) = limiter.busiest()
        permit.success()
        return seen.partitions["live"].in_flight

    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(waiting)
        until(lambda: limiter.busiest()[0].waiting == 1)
        held[0].success()
        assert served.result(DEADLINE) == 2
    held[1].success()


def test_a_call_that_passes_by_is_counted_at_no_limit(kind: Any) -> None:
    asked = []

    def bypass(operation: str, key: str) -> bool:
        asked.append((operation, key))
        return operation == "health"

    limiter = kind({"repo:*": 1}, bypass=bypass)
    first = enter(limiter, "repo:1", operation="fetch")
    passing = enter(limiter, "repo:1", operation="health"), enter(limiter, ["repo:1", "repo:2"], operation="health")
    assert asked == [("fetch", "repo:1"), ("health", "repo:1"), ("health", "repo:1"), ("health", "repo:2")]
    for permit in (first, *passing):
        permit.success()
    seen = limiter.statistics().patterns["repo:*"]
    assert (seen.succeeded, seen.bypassed) == (1, 3)


def ends(limiter: Any, calls: Sequence[tuple[Any, dict[str, Any]]], then: Callable[[], object]) -> list[str | None]:
    """The key at which each of these sheddable calls is told to give up while `then` runs, or None; all are over."""
    if isinstance(limiter, KeyedConcurrencyLimiter):
        permits = [enter(limiter, keys, sheddable=True, **options) for keys, options in calls]
        then()
        return [ending(permit) for permit in permits]

    async def main() -> list[str | None]:
        entered, gate = asyncio.Barrier(len(calls) + 1), asyncio.Event()

        async def call(keys: Any, options: Any) -> str | None:
            acquire = limiter.acquire if isinstance(keys, str) else limiter.acquire_all
            try:
                async with acquire(keys, sheddable=True, **options):
                    await entered.wait()
                    await gate.wait()
            except ConcurrencyLimited as refusal:
                return refusal.key if refusal.reason == "shed" else refusal.reason
            return None

        tasks = [asyncio.create_task(call(*each)) for each in calls]
        await entered.wait()
        await asyncio.to_thread(then)
        gate.set()
        return [await each for each in tasks]

    return asyncio.run(main())


def ending(permit: Any) -> str | None:
    try:
        with permit:
            permit.check()
    except ConcurrencyLimited as refusal:
        return refusal.key if refusal.reason == "shed" else refusal.reason
    return None


def passed_on(law: Settable) -> Settable:
    return law


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize(
    ("share", "told"), [(0.5, ["a", "b", None, None]), (0.3, ["a", "b", None, None]), (0.25, ["a", None, None, None])]
)
def test_calls_of_all_keys_are_told_together_the_least_first(kind: Any, share: float, told: list[str | None]) -> None:
    limiter = kind({"*": 9}, watchers=[Told()], shedding=Shedding(after=2, share=share))
    calls: list[Any] = [("a", {"priority": 0}), ("b", {"priority": 1}), ("a", {"priority": 2}), ("c", {"priority": 3})]
    seen = []

    def periods() -> None:
        for event in ("memory", "", "memory"):  # not two in a row
            round_of(limiter, *[event] * bool(event))
        seen.append(limiter.statistics().patterns["*"].shed)
        round_of(limiter, "memory")

    assert ends(limiter, calls, periods) == told
    counted, spared = limiter.statistics().patterns["*"], told.count(None)
    assert (*seen, counted.shed, counted.ignored, counted.succeeded) == (0, 4 - spared, 4 - spared, spared)
    assert counted.refused == {"shed": 4 - spared}


@pytest.mark.usefixtures("by_hand")
def test_what_the_watchers_of_a_key_see_ends_calls_of_this_key_alone(kind: Any, seen: dict[str, Told]) -> None:
    limits = {"repo:*": Keyed(gitaly, watchers=lambda key: [seen[key]], shedding=Shedding(after=1, share=1))}
    limiter = kind(limits)
    seen["repo:2"].event = "memory"
    calls: list[Any] = [("repo:1", {}), ("repo:2", {}), ("repo:2", {})]
    assert ends(limiter, calls, lambda: round_of(limiter)) == [None, "repo:2", "repo:2"]


@pytest.mark.usefixtures("by_hand")
def test_what_is_above_the_limit_of_a_key_for_long_is_told_without_watchers(kind: Any) -> None:
    laws = {"a": Settable(3), "b": Settable(3)}
    limits = {key: Keyed(partial(passed_on, law), shedding=Shedding(over=2, share=1)) for key, law in laws.items()}
    limiter = kind(limits)

    def periods() -> None:
        laws["a"].set_limit(1)
        round_of(limiter)
        round_of(limiter)
        round_of(limiter)

    calls: list[Any] = [("a", {"priority": 3}), ("a", {"priority": 2}), ("a", {"priority": 1}), ("b", {})]
    assert ends(limiter, calls, periods) == [None, "a", "a", None]


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize("troubled", [["repo:1"], ["repo:2"], ["repo:1", "repo:2"]])
def test_a_call_at_several_keys_ends_once_and_at_all_of_them(kind: Any, seen: dict[str, Told], troubled: Any) -> None:
    limits = {"repo:*": Keyed(gitaly, watchers=lambda key: [seen[key]], shedding=Shedding(after=1)), "all": Keyed(AIMD)}
    limiter = kind(limits)
    for each in troubled:
        seen[each].event = "memory"
    (key,) = ends(limiter, [(["all", "repo:1", "repo:2"], {})], lambda: round_of(limiter))
    assert key in troubled
    counted = limiter.statistics().patterns
    assert [(each.ignored, each.dropped, each.in_flight) for each in counted.values()] == [(2, 0, 0), (1, 0, 0)]


def test_the_rounds_end_calls_though_there_are_no_watchers(kind: Any) -> None:
    law = Settable(2)
    limiter = kind({"*": Keyed(lambda: law, shedding=Shedding(over=1))}, every=0.001)

    def fall() -> None:
        law.set_limit(1)
        until(lambda: limiter.statistics().patterns["*"].shed == 1)

    assert ends(limiter, [("a", {"priority": 1}), ("a", {})], fall) == [None, "a"]


@pytest.mark.usefixtures("by_hand")
def test_a_function_of_the_user_that_fails_spares_the_calls_of_its_key_alone(kind: Any) -> None:
    def fails(call: Any) -> int:
        raise ZeroDivisionError

    laws = {"a": Settable(2), "b": Settable(2)}
    shedding = {"a": Shedding(over=1, key=fails), "b": Shedding(over=1)}
    limiter = kind({key: Keyed(partial(passed_on, law), shedding=shedding[key]) for key, law in laws.items()})

    def fall() -> None:
        for law in laws.values():
            law.set_limit(1)
        round_of(limiter)

    calls: list[Any] = [("a", {}), ("a", {}), ("b", {"priority": 1}), ("b", {})]
    assert ends(limiter, calls, fall) == [None, None, None, "b"]


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (ValueError, "shedding needs watchers", lambda kind: kind({"*": 1}, shedding=Shedding())),
        (ValueError, "over= is about the limit of one key", lambda kind: kind({"*": 1}, shedding=Shedding(over=1))),
        (ValueError, "shedding needs watchers", lambda kind: Keyed(1, shedding=Shedding())),
        (TypeError, "shedding must be like Shedding", lambda kind: Keyed(1, shedding=unlike)),
        (TypeError, "partitions must be like Partitions", lambda kind: Keyed(1, partitions=unlike)),
        (TypeError, "bypass must be a function", lambda kind: kind({"*": 1}, bypass=3)),
        (ValueError, "Gitaly.* needs watchers=", lambda kind: kind({"*": Keyed(lambda: Gitaly(initial=9))})),
    ],
)
def test_what_cannot_work_says_so_when_it_is_made(kind: Any, error: Any, message: str, make: Any) -> None:
    with pytest.raises(error, match=message):
        make(kind)


def test_sums_hold_the_longest_baseline_of_each_kind() -> None:
    first = PatternStatistics(baselines={"get": 0.1, "put": 0.3})
    assert first.plus(PatternStatistics(baselines={"get": 0.2})).baselines == {"get": 0.2, "put": 0.3}


# Watchers: those of all keys, and those of the group of one key
def limits_of(limiter: Any, *keys: str) -> list[int]:
    return [limiter._gates.find(key).gate.limit for key in keys]


def test_watchers_move_the_limit_of_each_key(kind: Any) -> None:
    watcher = Told()
    limiter = kind({"repo:*": Keyed(gitaly), "*": 5}, watchers=[watcher], every=0.001)
    until(lambda: limits_of(limiter, "repo:1", "repo:2") == [20, 20])
    watcher.event = "memory 0.95"
    until(lambda: limits_of(limiter, "repo:1", "repo:2") == [1, 1])
    assert limits_of(limiter, "other") == [5]
    (counted,) = limiter.statistics().watchers
    assert (counted.name, counted.events > 0) == ("told", True)


@pytest.mark.usefixtures("by_hand")
def test_a_law_that_keys_share_takes_one_step_a_period_for_all_of_them(kind: Any) -> None:
    """As Gitaly has it: one limit for each call, which holds for each repository."""
    limiter = kind({"repo:*": Keyed(gitaly, shared=True)}, watchers=[Told()])
    assert limits_of(limiter, "repo:1", "repo:2") == [10, 10]
    round_of(limiter)
    assert limits_of(limiter, "repo:1", "repo:2", "repo:3") == [11, 11, 11]
    round_of(limiter, "memory", "cpu")
    assert limits_of(limiter, "repo:1", "repo:2", "repo:3") == [5, 5, 5]


@pytest.mark.usefixtures("by_hand")
def test_the_watchers_of_a_key_move_its_limit_alone(kind: Any, seen: dict[str, Told]) -> None:
    limiter = kind({"repo:*": Keyed(gitaly, watchers=lambda key: [seen[key]])})
    limits_of(limiter, *seen)
    seen["repo:1"].event = "memory"
    round_of(limiter)
    assert limits_of(limiter, *seen) == [5, 11]
    seen["repo:1"].event = None
    round_of(limiter)
    assert limits_of(limiter, *seen) == [6, 12]


def test_the_rounds_poll_the_watchers_of_keys_too(kind: Any, seen: dict[str, Told]) -> None:
    seen["repo:1"].event = "memory"
    limiter = kind({"repo:*": Keyed(gitaly, watchers=lambda key: [seen[key]])}, every=0.001)
    until(lambda: limits_of(limiter, *seen) == [1, 20])
    assert [each.name for each in limiter.statistics().watchers] == ["keys"]


@pytest.mark.usefixtures("by_hand")
def test_a_control_group_may_appear_later(kind: Any, tmp_path: Path) -> None:
    """A factor of 0.75 at 75 % of memory, as the blueprint of Gitaly has it."""

    def watchers(key: str) -> list[MemoryWatcher]:
        return [MemoryWatcher(0.75, group=f"repos/{key}", root=tmp_path)]

    limiter = kind({"*": Keyed(lambda: Gitaly(initial=20, factor=0.75), watchers=watchers)})
    limits_of(limiter, "a")
    round_of(limiter)
    (tmp_path / "cgroup.controllers").write_text("memory")
    group = tmp_path / "repos" / "a"
    group.mkdir(parents=True)
    write(
        group,
        memory_max=1000,
        memory_high="max",
        memory_current=760,
        memory_stat={"inactive_file": 0},
        memory_events={"oom": 0, "oom_kill": 0},
    )
    assert limits_of(limiter, "a") == [21]
    round_of(limiter)
    assert limits_of(limiter, "a") == [15]
    write(group, memory_current=400)
    round_of(limiter)
    assert limits_of(limiter, "a") == [16]


@pytest.mark.usefixtures("by_hand")
def test_watchers_of_one_key_that_fail_change_nothing_for_others(kind: Any, seen: Any, caplog: Any) -> None:
    seen["repo:1"].event, seen["repo:2"].event = OSError("gone"), "memory"
    limiter = kind({"repo:*": Keyed(gitaly, watchers=lambda key: [seen[key]])})
    limits_of(limiter, *seen)
    with caplog.at_level(logging.WARNING, "batchlimit"):
        watchers = limiter._gates
        watchers.poll()
        watchers.poll()
        watchers.end_period(())
    assert limits_of(limiter, *seen) == [11, 5]
    assert [each.getMessage() for each in caplog.records if "a watcher of key" in each.getMessage()] == [
        "a watcher of key 'repo:1' failed, which counts as nothing seen: OSError('gone')"
    ]


@pytest.mark.usefixtures("by_hand")
def test_a_law_that_fails_keeps_no_other_from_hearing(kind: Any) -> None:
    class Broken(Gitaly):
        def calibrate(self, events: Sequence[str], now_ns: int) -> int:
            raise ZeroDivisionError

    limits = {"a": Keyed(Broken), "b": Keyed(Broken, shared=True), "c": Keyed(gitaly), "d": Keyed(gitaly, shared=True)}
    limiter = kind(limits, watchers=[Told()])
    limits_of(limiter, *limits)
    round_of(limiter)
    assert limits_of(limiter, *limits) == [15, 15, 11, 11]


@pytest.mark.usefixtures("by_hand")
def test_a_law_that_hears_of_no_watchers_hears_of_a_drop_and_listeners_are_told_why() -> None:
    limits = {
        "a": Keyed(lambda: AIMD(initial=10, minimum=1)),
        "b": Keyed(lambda: AIMD(initial=10, minimum=1), shared=True),
        "c": Keyed(Knee),
    }
    with closing(KeyedConcurrencyLimiter(limits, watchers=[Told()])) as limiter:
        told = []
        limiter.listen(lambda *change: told.append(change), why=True)
        for key in limits:
            limiter.acquire(key).success()
        round_of(limiter, "memory")
    assert told == [("a", 10, 9, "watchers"), ("b", 10, 9, "watchers"), ("c", 20, 17, "watchers")]


def test_a_limit_that_is_set_holds_at_once_though_it_is_watched() -> None:
    law = Settable(3)
    with closing(KeyedConcurrencyLimiter({"*": Keyed(lambda: law)}, watchers=[Told()])) as limiter:
        limits_of(limiter, "a")
        law.set_limit(7)
        assert limits_of(limiter, "a") == [7]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KeyedConcurrencyLimiter({"*": Keyed(Gitaly)}), "needs watchers"),
        (lambda: KeyedConcurrencyLimiter({"*": Keyed(Gitaly, shared=True)}), "needs watchers"),
        (lambda: KeyedConcurrencyLimiter({"*": Keyed(gitaly)}).acquire("a"), "needs watchers"),
        (lambda: Keyed(Gitaly, shared=True, watchers=lambda key: []), "neither a number nor a law that keys share"),
        (lambda: Keyed(20, watchers=lambda key: []), "neither a number nor a law that keys share"),
        (lambda: Keyed(Gitaly, watchers=[Told()]), "must be a function of a key"),  # type: ignore[arg-type]
        (lambda: KeyedConcurrencyLimiter({"*": 1}, watchers=[Told]), "must have a name"),  # type: ignore[list-item]
        (lambda: KeyedConcurrencyLimiter({"*": 1}, watchers=[Told()], every=0), r"every \(seconds\) must be"),
    ],
)
def test_what_would_stay_still_is_an_error(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


@pytest.mark.usefixtures("by_hand")
def test_a_key_whose_watchers_cannot_be_had_yet_grows_unlogged(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    def watchers(key: str) -> list[Told]:
        raise WatcherUnavailable("no such group")

    limiter = kind({"*": Keyed(gitaly, watchers=watchers)})
    limits_of(limiter, "a")
    with caplog.at_level(logging.WARNING, "batchlimit"):
        round_of(limiter)
    assert (limits_of(limiter, "a"), caplog.records) == ([11], [])

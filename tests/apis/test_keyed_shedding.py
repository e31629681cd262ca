"""Partitions, a bypass and shedding by key, of both keyed concurrency limiters."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from batchlimit import ConcurrencyLimited, Partitions, Queue
from batchlimit.concurrency import Keyed, KeyedConcurrencyLimiter, Shedding
from batchlimit.concurrency.keyed.limits import PatternStatistics
from batchlimit.laws import AIMD, Gitaly, Settable
from tests.apis.keyed import Told, close, round_of
from tests.awaiting import awaited
from tests.sync.stage import DEADLINE, until

unlike: Any = {"live": 0.5}
HALF = Partitions({"live": 0.5}, strict=True, unknown="refuse")


def enter(limiter: Any, keys: str | Sequence[str], **options: Any) -> Any:
    acquire = limiter.acquire if isinstance(keys, str) else limiter.acquire_all
    permit = acquire(keys, **options)
    return permit if isinstance(limiter, KeyedConcurrencyLimiter) else awaited(lambda: permit)


def refused(limiter: Any, keys: str | Sequence[str], **options: Any) -> tuple[str, str | None]:
    with pytest.raises(ConcurrencyLimited) as caught:
        enter(limiter, keys, **options)
    return caught.value.reason, caught.value.key


# Partitions and a bypass


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
    close(limiter)


@pytest.mark.parametrize("keys", ["repo:1", ["repo:1"]], ids=["one", "several"])
def test_who_waits_waits_for_a_place_of_its_partition(kind: Any, keys: Any) -> None:
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
    close(limiter)


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
    close(limiter)


# Shedding


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


def gitaly() -> Gitaly:
    return Gitaly(initial=10, minimum=1, maximum=20)


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize(
    ("share", "told"),
    [(0.5, ["a", "b", None, None]), (0.3, ["a", "b", None, None]), (0.25, ["a", None, None, None])],
)
def test_the_calls_of_all_keys_are_told_together_the_least_first(
    kind: Any, share: float, told: list[str | None]
) -> None:
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
    close(limiter)


@pytest.mark.usefixtures("by_hand")
def test_what_the_watchers_of_a_key_see_ends_calls_of_this_key_alone(kind: Any, seen: dict[str, Told]) -> None:
    limits = {"repo:*": Keyed(gitaly, watchers=lambda key: [seen[key]], shedding=Shedding(after=1, share=1))}
    limiter = kind(limits)
    seen["repo:2"].event = "memory"
    calls: list[Any] = [("repo:1", {}), ("repo:2", {}), ("repo:2", {})]
    assert ends(limiter, calls, lambda: round_of(limiter)) == [None, "repo:2", "repo:2"]
    close(limiter)


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
    close(limiter)


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize("troubled", [["repo:1"], ["repo:2"], ["repo:1", "repo:2"]])
def test_a_call_at_several_keys_ends_once_and_at_all_of_them(
    kind: Any, seen: dict[str, Told], troubled: list[str]
) -> None:
    limits = {"repo:*": Keyed(gitaly, watchers=lambda key: [seen[key]], shedding=Shedding(after=1)), "all": Keyed(AIMD)}
    limiter = kind(limits)
    for each in troubled:
        seen[each].event = "memory"
    (key,) = ends(limiter, [(["all", "repo:1", "repo:2"], {})], lambda: round_of(limiter))
    assert key in troubled
    counted = limiter.statistics().patterns
    assert [(each.ignored, each.dropped, each.in_flight) for each in counted.values()] == [(2, 0, 0), (1, 0, 0)]
    close(limiter)


def test_the_rounds_end_calls_though_there_are_no_watchers(kind: Any) -> None:
    law = Settable(2)
    limiter = kind({"*": Keyed(lambda: law, shedding=Shedding(over=1))}, every=0.001)

    def fall() -> None:
        law.set_limit(1)
        until(lambda: limiter.statistics().patterns["*"].shed == 1)

    assert ends(limiter, [("a", {"priority": 1}), ("a", {})], fall) == [None, "a"]
    close(limiter)


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
    close(limiter)


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

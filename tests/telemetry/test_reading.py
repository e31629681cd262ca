"""Which series the statistics of each kind of limiter are, as a table."""

from typing import ClassVar

import pytest

from batchlimit import ConcurrencyLimited, ConcurrencyLimiter, RateLimiter, Statistics
from batchlimit.base.histogram import Durations, Histogram
from batchlimit.concurrency import KeyedConcurrencyLimiter, KeyedStatistics, PatternStatistics, WatcherStatistics
from batchlimit.integrations.counters import EnforcementStatistics, RuleCounts
from batchlimit.laws import AIMD, Fixed, Knee
from batchlimit.reservoir.statistics import PolicyStatistics
from batchlimit.shared import SharedConcurrencyLimiter
from batchlimit.telemetry.metrics import BASELINE, CALLS, METRICS, WAITED
from batchlimit.telemetry.reading import MOST_POLICIES, Reading, Series, read
from tests.depth import depth


def told(reading: Reading) -> dict[str, float]:
    """The series that are not 0, by name and labels; of a histogram, how many there were."""
    return {
        " ".join((series.metric.name.removeprefix("batchlimit."), *series.values)): told
        for series, value in reading.items()
        if (told := value.total if isinstance(value, Histogram) else value)
    }


def test_a_rate_limiter() -> None:
    with RateLimiter.from_url("memory://", "2/hour") as limiter:
        for _ in range(3):
            limiter.try_acquire("ann")
        seen = told(read(limiter.statistics()))
    assert seen.pop("store.duration") == seen.pop("store.operations")
    assert {name: value for name, value in seen.items() if not name.startswith("tokens")} == {
        "keys": 1,
        "low_keys *": 1,
        "store.available": 1,
    }
    assert sum(value for name, value in seen.items() if name.startswith("tokens * acquired ")) == 2
    assert sum(value for name, value in seen.items() if name.startswith("tokens * refused ")) == 1


def test_tokens_are_told_by_policy_result_and_who_decided() -> None:
    policies = {
        "user:*": PolicyStatistics(
            admitted=100, from_store=20, fallback=5, opened=7, refused=9, by_store=3, timed_out=2
        ),
        "*": PolicyStatistics(low=4, waiting=6),
    }
    assert told(read(Statistics(0, 100, 9, 0, 0, 6, available=False, policies=policies))) == {
        "tokens user:* acquired memory": 68,
        "tokens user:* acquired store": 20,
        "tokens user:* acquired fallback": 5,
        "tokens user:* acquired open": 7,
        "tokens user:* refused denied": 4,
        "tokens user:* refused store": 3,
        "tokens user:* timed_out store": 2,
        "low_keys *": 4,
        "queued_requests *": 6,
    }


def test_there_is_a_histogram_of_a_policy_once_there_is_something_in_it() -> None:
    durations = Durations()
    durations.add(0.03)
    policies = {"*": PolicyStatistics(waits=durations.read()), "idle": PolicyStatistics()}
    seen = read(Statistics(0, 0, 0, 0, 0, 0, policies=policies))
    waits = {series.values: value for series, value in seen.items() if series.metric is WAITED}
    assert waits == {("*",): durations.read()}


def test_a_concurrency_limiter() -> None:
    with ConcurrencyLimiter(Fixed(1)) as limiter:
        limiter.acquire().success()
        with limiter.acquire(), pytest.raises(ConcurrencyLimited):
            limiter.acquire()
        limiter.acquire().drop()
        with limiter.acquire():
            seen = told(read(limiter.statistics()))
            assert seen.pop("concurrency.last_duration ") > 0
            assert seen == {
                "concurrency.limit ": 1,
                "concurrency.settled_limit ": 1,
                "concurrency.in_flight ": 1,
                "concurrency.requests  succeeded ": 2,
                "concurrency.requests  dropped ": 1,
                "concurrency.requests  refused limit": 1,
            }


def test_a_keyed_limiter_is_told_by_pattern() -> None:
    limiter = KeyedConcurrencyLimiter({"user:*": 1, "*": 5})
    limiter.acquire("other").ignore()
    with limiter.acquire("user:ann"), pytest.raises(ConcurrencyLimited):
        limiter.acquire("user:ann")
    assert told(read(limiter.statistics())) == {
        "concurrency.requests user:* succeeded ": 1,
        "concurrency.requests user:* refused limit": 1,
        "concurrency.requests * ignored ": 1,
    }


def test_baselines_of_keys_are_told_by_pattern_the_longest() -> None:
    """So are those of all patterns without a label of their own, where the rest is added up."""
    patterns = {f"p{n}": PatternStatistics(succeeded=1, baselines={"get": 0.001 * n}) for n in range(MOST_POLICIES + 3)}
    reading = read(KeyedStatistics(patterns))
    of = {label: reading[Series(BASELINE, (label, "get"))] for label in ("p7", "other")}
    assert of == {"p7": 0.007, "other": pytest.approx(0.001 * (MOST_POLICIES + 2))}
    assert reading[Series(CALLS, ("other", "succeeded", ""))] == 3


def test_the_watchers_of_a_keyed_limiter_are_told() -> None:
    seen = KeyedStatistics({}, (WatcherStatistics("keys", polls=3, events=2, errors=1, timeouts=0),))
    assert told(read(seen)) == {
        "concurrency.watcher.polls keys polls": 3,
        "concurrency.watcher.polls keys events": 2,
        "concurrency.watcher.polls keys errors": 1,
    }


def test_web_rules() -> None:
    counts = {"login": RuleCounts(matched=6, acquired=3, refused=2, no_key=1), "trial": RuleCounts(shadow_refused=4)}
    assert told(read(EnforcementStatistics(12, 4, counts, exempt=2))) == {
        "requests  unmatched": 4,
        "requests  exempt": 2,
        "requests login acquired": 3,
        "requests login refused": 2,
        "requests login no_key": 1,
        "requests trial shadow_refused": 4,
    }


def test_rules_beyond_two_hundred_are_other() -> None:
    counts = {f"rule {number}": RuleCounts(acquired=1) for number in range(1000)}
    reading = read(EnforcementStatistics(1000, 0, counts))
    assert len({series.values[0] for series in reading}) == MOST_POLICIES + 2  # "" and "other"
    assert told(reading)["requests other acquired"] == 1000 - MOST_POLICIES


def test_no_label_holds_a_key() -> None:
    with RateLimiter.from_url("memory://", "2/hour", max_keys=1000) as limiter:
        before = read(limiter.statistics())
        for number in range(depth(3000, 100_000)):
            limiter.try_acquire(f"hostile {number}")
        assert set(read(limiter.statistics())) == set(before)


def test_names_follow_the_conventions() -> None:
    for metric in METRICS:
        assert metric.name.startswith("batchlimit.")
        assert "total" not in metric.name
        assert metric.unit in ("1", "s") or metric.unit.startswith("{")
        assert metric.text.endswith(".")
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_what_has_no_statistics_has_no_metrics() -> None:
    with pytest.raises(TypeError, match="there are no metrics of 3"):
        read(3)


def test_a_law_that_changes_its_limit_and_the_call_it_learned_from() -> None:
    clock = iter(range(0, 10**9, 10**6))
    with ConcurrencyLimiter(AIMD(initial=1, minimum=1, maximum=9, timeout=5), clock=lambda: next(clock)) as limiter:
        limiter.acquire().success()
        limiter.acquire().drop()
        seen = told(read(limiter.statistics()))
    assert seen["concurrency.limit_changes  raised room"] == 1
    assert seen["concurrency.limit_changes  lowered loss"] == 1
    assert seen["concurrency.last_duration "] == 0.001


def test_a_law_that_compares_calls_with_a_baseline() -> None:
    clock = iter(range(0, 10**12, 10**8))
    with ConcurrencyLimiter(Knee(), clock=lambda: next(clock)) as limiter:
        for _ in range(100):
            limiter.acquire(operation="read").success()
        seen = told(read(limiter.statistics()))
    assert seen["concurrency.baseline  read"] == pytest.approx(0.1)
    assert seen["concurrency.ratio "] == pytest.approx(1)


def test_operations_beyond_two_hundred_are_left_out() -> None:
    class Many(Fixed):
        baselines: ClassVar = dict.fromkeys(map(str, range(1000)), 0.1)

    with ConcurrencyLimiter(Many(5)) as limiter:
        seen = told(read(limiter.statistics()))
    assert len([name for name in seen if name.startswith("concurrency.baseline")]) == MOST_POLICIES


def test_a_shared_concurrency_limiter_names_no_key() -> None:
    with SharedConcurrencyLimiter.from_url("memory://", {"gpu": 1}) as limiter, limiter.acquire("gpu"):
        with pytest.raises(ConcurrencyLimited):
            limiter.acquire("gpu", timeout=0)
        seen = told(read(limiter.statistics()))
    assert seen.pop("store.operations") > 0
    assert seen == {
        "concurrency.in_flight ": 1,
        "concurrency.requests  admitted ": 1,
        "concurrency.requests  refused ": 1,
    }

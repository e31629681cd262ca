"""The provider that strangers share: what it admits and says, and that the benchmark counts what it says."""

from batchlimit.integrations.told import Allowance, observe
from benchmarks.strangers.__main__ import _beside
from benchmarks.strangers.provider import TellingBucket, Windows
from benchmarks.strangers.run import ADAPTS, ASSISTED, BACKOFF, OURS, Run, simulated


def test_the_bucket_says_what_it_has() -> None:
    bucket = TellingBucket(0.0)
    assert [bucket.take(0.0) for _ in range(101)] == [True] * 100 + [False]
    told = observe(bucket.says(0.0, admitted=False), 0.0)
    assert (told.after, told.allowances["requests"]) == (0.01, Allowance(0, 100, 1.0, refills=True))
    assert bucket.take(0.011)


def test_a_window_is_whole_again_at_its_end() -> None:
    windows = Windows(0.0, 10.0)
    assert [windows.take(0.4) for _ in range(1001)] == [True] * 1000 + [False]
    told = observe(windows.says(0.4, admitted=False), 0.0)
    assert (told.after, told.allowances["default"]) == (10.0, Allowance(0, 1000, 10, 10))
    assert windows.take(10.0)


def test_a_limit_of_the_calls_under_way_helps_where_nothing_is_told() -> None:
    adapts, backoff = [simulated("mute", who, 20) for who in (ADAPTS, BACKOFF)]
    assert adapts.refused < 0.1 * backoff.refused
    assert adapts.strangers < 0.6 * backoff.strangers


def test_who_observes_gets_fewer_429s_and_leaves_strangers_theirs() -> None:
    ours, backoff = [simulated("bucket", who, 20) for who in (OURS, BACKOFF)]
    assert ours.refused < 0.03 * backoff.refused
    assert ours.strangers < 0.1 * backoff.strangers
    assert ours.used > 97


def test_what_is_asked_for_is_told_of_providers_that_tell() -> None:
    runs = {who: Run(refused, 1, 0, 100, 0) for who, refused in ((OURS, 0.4), (BACKOFF, 10.0), (ASSISTED, 0.3))}
    assert [each.verdict for each in _beside("bucket", runs)] == ["short", "short"]
    assert [each.verdict for each in _beside("silent", runs)] == ["", ""]

"""The experiments: what each shows of limiters on servers, of strangers, and of calls that go out."""

import time
from collections.abc import Iterable
from dataclasses import replace

import pytest

from batchlimit.concurrency.law import Law, Sample
from batchlimit.integrations.told import Allowance, observe
from benchmarks.far_for_a_while import AGAIN, FAR, SETTLED, shares
from benchmarks.gitaly import LOAD, Callers, Finding, measure
from benchmarks.gitaly_server import HTTP, LIMITS, SSH
from benchmarks.outbound import Arrival, Provider, _pause
from benchmarks.queueing.elsewhere import Brpc, EnvoyGradient, FailsafeGo
from benchmarks.strangers.__main__ import _beside
from benchmarks.strangers.provider import TellingBucket, Windows
from benchmarks.strangers.run import ADAPTS, ASSISTED, BACKOFF, OURS, Run, simulated
from tests.depth import depth
from tests.servers import Server


def test_each_limit_holds_and_each_queue_is_as_long_as_it_is_told() -> None:
    slow = "slow clones of one repository"  # each far longer than anybody may wait, so that a busy server refuses too
    load = [replace(each, seconds=5.0 if each.name == slow else 0.1) for each in LOAD]
    ends, found = measure(load, 1.5)
    assert all(each.kept for each in found)
    most = {each.pattern: each.most for each in found}
    assert most[f"{SSH} repo:*"] == 20
    assert ends[slow]["queue_full"]
    assert min(ends[slow]["queue_timeout"]) >= 1.0
    assert "queue_timeout" not in ends["one user, many repositories"]


@pytest.mark.parametrize(("callers", "most"), depth([(16, 15)], [(10, 10), (16, 15), (30, 15)]))
def test_a_user_gets_no_more_than_the_limit_of_a_user_however_many_repositories(callers: int, most: int) -> None:
    load = [Callers("one user", callers, HTTP, 1000, 1, 0.5)]
    ends, found = measure(load, 0.1)
    assert {each.pattern: each.most for each in found}["user:*"] <= most
    assert len(ends["one user"]["served"]) >= callers


def test_a_finding_shows_a_limit_that_was_exceeded() -> None:
    keyed = LIMITS["user:*"]
    assert Finding("user:*", keyed, 15, 0, {}).kept
    broken = Finding("user:*", keyed, 16, 3, {"queue_full": 2})
    assert broken.row() == ["`user:*`", "16 of 15 **BROKEN**", "200, 60 s", "3", "2 queue_full"]


# The shares of callers while the store is far away, and after that


def test_each_part_of_a_run_has_its_share(valkey: Server) -> None:
    def callers(_url: str, _quota: str, until: float) -> list[float]:
        far, again = until - AGAIN - FAR, until - AGAIN
        return [far - 1.0, far + 0.1, far + 0.2, far + 0.3, again + 0.1, *([again + SETTLED + 0.1] * 8)]

    found = shares(callers, valkey.url, "2/s", 0.03)
    assert found == pytest.approx((3 / (2 * FAR), 1 / (2 * SETTLED), 8 / (2 * (AGAIN - SETTLED))))


# The provider that strangers share: what it admits and says, and that the benchmark counts what it says


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


# The laws of other libraries step as these publish them


_MS = 1_000_000


def fed(law: Law, times_ms: Iterable[float], every_ms: float = 10.0, start_ms: float = 0.0, in_flight: int = 20) -> Law:
    """Let calls end at even distances."""
    for place, took in enumerate(times_ms):
        rtt = int(took * _MS)
        law.update(Sample(int((start_ms + every_ms * (place + 1)) * _MS) - rtt, rtt, in_flight))
    return law


def test_envoy_measures_at_three_calls_and_then_grows_by_a_quarter_and_the_root() -> None:
    law = EnvoyGradient()
    assert fed(law, [5.0] * 49).limit == 3
    fed(law, [5.0], start_ms=490)
    assert law.limit == 3  # where it was before it measured
    fed(law, [5.0] * 11, start_ms=500)
    assert law.limit == 5  # 3 x 1.25 + sqrt(3.75)


def test_envoy_halves_at_most_and_measures_anew_after_five_windows_at_the_least_limit() -> None:
    law = fed(EnvoyGradient(), [5.0] * 200)
    before = law.limit
    fed(law, [50.0] * 11, start_ms=2000)
    assert law.limit == int(before / 2 + (before / 2) ** 0.5)
    seen = [fed(law, [500.0] * 11, start_ms=2200 + 110 * turn).limit for turn in range(40)]
    assert min(seen) == 3
    assert seen[-1] > 100  # by now 500 ms are the time of a call


@pytest.mark.parametrize(("windows", "limit"), [(1, 21), (3, 23)])
def test_failsafe_grows_by_one_a_window_without_a_queue(windows: int, limit: int) -> None:
    assert fed(FailsafeGo(), [5.0] * 100 * windows, every_ms=10.5).limit == limit


def test_failsafe_shrinks_for_a_queue() -> None:
    law = fed(FailsafeGo(), [5.0] * 1000, every_ms=10.5)
    before = law.limit
    assert min(fed(law, [50.0] * 100, 10.5, 20_000 + 1050 * turn).limit for turn in range(10)) < before


def test_brpc_goes_by_littles_law_and_up_to_forty_per_cent_more() -> None:
    # 201 calls in the first second of 500 ms each: 101 are under way.
    assert fed(Brpc(), [500.0] * 201, every_ms=5.0).limit == 142
    assert fed(Brpc(minimum=1), [50.0] * 201, every_ms=5.0).limit == 16
    assert fed(Brpc(), [50.0] * 201, every_ms=5.0).limit == 40


# What the benchmark of outbound calls counts: the provider's bucket, its one pause, and who calls in it


def test_the_provider_refuses_beyond_its_bucket_and_says_when_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    provider = Provider(pauses_at=200.0)
    answers = [provider.answer() for _ in range(21)]
    assert [b"200 OK" in each for each in answers] == [True] * 20 + [False]
    assert b"retry-after-ms: 11\r\n" in answers[-1], "a token in 10 ms, rounded up"
    now[0] += 0.011
    assert b"200 OK" in provider.answer()


def test_who_calls_in_a_pause_is_counted_apart_from_who_had_leased() -> None:
    arrivals = [Arrival(at, 200) for at in (10.5, 11.4, 11.6, 14.9, 15.0, 15.95, 16.0)]
    soon, early, first, _ = _pause(10.0, [Arrival(10.0, 429), *arrivals])
    assert (soon.value, early.value, early.verdict, first.value) == (2, 2, "short", 2)

"""The laws of other libraries step as these publish them."""

from collections.abc import Iterable

import pytest

from batchlimit.concurrency.law import Law, Sample
from benchmarks.queueing.elsewhere import Brpc, EnvoyGradient, FailsafeGo

_MS = 1_000_000


def fed(law: Law, times_ms: Iterable[float], every_ms: float = 10.0, start_ms: float = 0.0, in_flight: int = 20) -> Law:
    """Let calls end at even distances."""
    for place, time in enumerate(times_ms):
        rtt = int(time * _MS)
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

from typing import Any

import pytest

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import Gradient
from tests.concurrency.laws.world import MS, drop, limits, sample


def hundred(**given: Any) -> Gradient:
    """A hundred calls, four of which may wait, and calls of 10 ms where none does; it never probes."""
    law = Gradient(**{"initial": 100, "queue_size": 4, "probe_interval": None, **given})
    law.update(sample(10, in_flight=0))
    return law


@pytest.mark.parametrize(
    ("told", "estimate"),
    [
        (sample(10), 104.0),  # growth is not smoothed
        (sample(20), 104.0),  # tolerated
        (sample(25), 0.8 * 100 + 0.2 * (80 + 4)),
        (sample(20.5), 100 * (20 / 20.5) + 4),
        (sample(40), 0.8 * 100 + 0.2 * (50 + 4)),
        (sample(1000), 0.8 * 100 + 0.2 * (50 + 4)),  # no less than half
        (sample(5), 104.0),
        (sample(10, in_flight=49), 100.0),  # less than half was in use
        (sample(40, in_flight=49), 100.0),
        (sample(10, in_flight=50), 104.0),
        (drop(10), 0.8 * 100 + 0.2 * 90),
        (sample(10, in_flight=0, dropped=True), 0.8 * 100 + 0.2 * 90),
    ],
)
def test_a_step_follows_the_gradient(told: Sample, estimate: float) -> None:
    law = hundred()
    assert law.update(told) == int(estimate) == law.limit
    assert law.estimated_limit == estimate


def test_a_step_to_the_same_limit_is_not_one_down() -> None:
    law = Gradient(initial=10, minimum=20, backoff_ratio=1.0)
    assert law.update(drop()) == 10


def test_the_root_of_the_limit_may_wait_unless_told() -> None:
    assert limits(Gradient(initial=99), [sample()] * 3) == [108, 118, 128]


def test_a_probe_falls_to_the_queue_and_forgets_the_least_rtt() -> None:
    jitters = iter([0.0, 0.75, 0.0])
    law = Gradient(initial=100, probe_interval=4, jitter=lambda: next(jitters))
    assert law.probe_countdown == 4
    seen = [(law.update(sample(10, 10)), law.rtt_noload_ns // MS, law.probe_countdown) for _ in range(13)]
    before = [(100, 10, 3), (100, 10, 2), (100, 10, 1), (100, 10, 0)]
    # 4 + 0.75 x 4 samples until the next; there is growth only up to twice what is in use
    after = [(14, 10, 6), (18, 10, 5), (22, 10, 4), (22, 10, 3), (22, 10, 2), (22, 10, 1), (22, 10, 0)]
    assert seen == [*before, (10, 0, 7), *after, (4, 0, 4)]


def test_a_probe_keeps_the_minimum() -> None:
    law = Gradient(initial=100, minimum=30, probe_interval=1, jitter=lambda: 0.0)
    assert limits(law, [drop(), drop()]) == [98, 30]


def test_it_probes_after_one_and_a_half_intervals_unless_told() -> None:
    assert Gradient().probe_countdown == 1500
    assert Gradient(probe_interval=None).probe_countdown is None

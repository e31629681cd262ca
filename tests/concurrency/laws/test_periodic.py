import statistics
from collections.abc import Callable, Sequence

import pytest

from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import Periodic, p95
from tests.concurrency.laws.world import MS, SECOND, Listener, sample


def test_a_period_begins_where_a_call_ends_and_brings_one_decision() -> None:
    law = Listener()
    periodic = Periodic(law)
    at_end = [
        (5, 0),
        (900, 0),
        (2999, 0),
        (3004, 0),
        (3005, 1),
        (6000, 1),
        (6004, 1),
        (6005, 2),
        (60_000, 3),
        (60_001, 3),
    ]
    for end, decisions in at_end:
        assert periodic.update(sample(5, at=end - 5)) == periodic.limit == 1 + decisions, end
        assert len(law.told) == decisions, end


def test_a_decision_is_about_the_calls_of_its_period() -> None:
    law = Listener()
    periodic = Periodic(law, every=1.0)
    for told in [sample(10, 3, at=0), sample(30, 7, True, at=20), sample(20, 5, at=90), sample(400, 9, at=1000)]:
        periodic.update(told)
    assert law.told == [Sample(90 * MS, 30 * MS, 7, True)]
    periodic.update(sample(10, 1, at=5000))
    # the drop was of the period before; its rtts still count
    assert law.told[1:] == [Sample(1000 * MS, 400 * MS, 9, False)]


def test_the_statistic_is_over_the_last_calls_though_they_be_of_several_periods() -> None:
    def told(last: int) -> list[int]:
        law = Listener()
        periodic = Periodic(law, every=1.0, statistic=max, last=last)
        for second, ms in enumerate([50, 10, 11, 12]):
            periodic.update(sample(ms, at=2000 * second))
            periodic.update(sample(1, at=2000 * second + 100))
        return [each.rtt_ns // MS for each in law.told]

    assert told(1000) == [50, 50, 50]
    assert told(4) == [50, 50, 11]
    assert told(2) == [50, 10, 11]


@pytest.mark.parametrize(
    ("statistic", "ns"), [(max, 40), (statistics.fmean, 17), (statistics.median, 15), (p95, 40), (min, 1)]
)
def test_the_statistic_is_a_function_of_the_rtts(statistic: Callable[[Sequence[int]], float], ns: int) -> None:
    law = Listener()
    periodic = Periodic(law, statistic=statistic)
    for rtt in (40, 1, 10, 20):
        periodic.update(Sample(0, rtt, 1))
    periodic.update(Sample(SECOND * 3, 40, 1))
    assert law.told == [Sample(0, ns, 1)]
    assert isinstance(law.told[0].rtt_ns, int)


@pytest.mark.parametrize("rtt_ns", [-1, 2**53 + 1, 10**400])
def test_a_call_without_a_duration_is_left_out(rtt_ns: int) -> None:
    law = Listener()
    periodic = Periodic(law)
    periodic.update(Sample(0, 0, 1))
    periodic.update(Sample(10 * SECOND, rtt_ns, 99, True))
    periodic.update(Sample(10 * SECOND, 2**53, 1))
    assert law.told == [Sample(0, 0, 1)]

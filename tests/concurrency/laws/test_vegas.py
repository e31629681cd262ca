from batchlimit.concurrency.laws import Vegas
from tests.concurrency.laws.world import MS, drop, limits, sample


def ten() -> Vegas:
    """Ten calls, of which three to six may wait, and calls of 10 ms where none does."""
    law = Vegas(initial=10, maximum=20, alpha=3, beta=6)
    law.update(sample(10))
    return law


def test_the_bounds_are_one_and_the_maximum() -> None:
    assert limits(ten(), [sample()] * 3) == [16, 20, 20]
    assert limits(ten(), [drop()] * 11)[-3:] == [1, 1, 1]


def test_without_an_own_measure_it_steps_by_the_logarithm() -> None:
    large = Vegas(initial=10_000, maximum=20_000)
    assert limits(large, [sample(10, 6000), sample(10, 6000), drop()]) == [10_000, 10_024, 10_020]
    # at 200, a logarithm of 2: up to 2 in the queue is none, below 6 few, 6 to 12 all right
    middling = [(10.1, 212), (10.15, 202), (10.2, 202), (10.25, 202), (10.3, 200), (10.6, 200), (10.7, 198)]
    for ms, limit in middling:
        assert limits(Vegas(initial=200), [sample(10), sample(ms)])[-1] == limit, ms


def test_it_probes_after_as_many_samples_as_told_whatever_the_load() -> None:
    jitters = iter([0.5, 0.75, 0.5])
    law = Vegas(initial=4, probe_multiplier=3, jitter=lambda: next(jitters))
    noload = []
    for ms in range(10, 27):
        law.update(sample(ms, in_flight=0))
        noload.append((law.rtt_noload_ns // MS, law.probe_count))
    # after 0.5 x 3 x 4 samples, and after 0.75 x 3 x 4 more
    first = [(10, count) for count in range(1, 6)]
    second = [(15, count) for count in range(9)]
    assert noload == [*first, *second, (24, 0), (24, 1), (24, 2)]


def test_a_drop_in_a_probe_is_lost() -> None:
    law = Vegas(initial=4, probe_multiplier=1, jitter=lambda: 0.5)
    assert limits(law, [sample(10), drop(20)]) == [4, 4]
    assert law.rtt_noload_ns == 20 * MS


def test_it_probes_at_three_quarters_of_the_longest_way_unless_told() -> None:
    law = Vegas(initial=4)
    limits(law, [sample(10, in_flight=0)] * 89)
    assert law.probe_count == 89
    law.update(sample(10, in_flight=0))
    assert law.probe_count == 0

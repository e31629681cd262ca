from batchlimit.concurrency.law import Sample
from batchlimit.concurrency.laws import Gradient2


def test_the_average_is_a_mean_first_and_then_follows_slowly() -> None:
    law = Gradient2(long_window=100, warmup=10)

    def average(ns: int) -> float:
        law.update(Sample(0, ns, 0))
        return law.long_rtt_ns

    assert [average(value) for value in range(10, 20)] == [10 + half / 2 for half in range(10)]
    assert average(100) == 14.5 * (1 - 2 / 101) + 100 * (2 / 101)

"""Where the knee is, the limit goes; and whatever it is told, it stays a whole number within its bounds."""

from hypothesis import given
from hypothesis import strategies as st

from batchlimit.core.law import Calibrated, Law
from batchlimit.core.sample import Sample
from batchlimit.laws.knee import Knee

_MS = 1_000_000
_SECOND = 1000 * _MS


class Line:
    """A server of `workers`, each call `service_ms` long, kept full by callers: rtt and throughput as they must be."""

    def __init__(self, law: Knee, workers: int, service_ms: float = 20.0) -> None:
        self.law, self.workers, self.service_ns = law, workers, service_ms * _MS
        self.now = 0.0
        self.dropped = False

    def serve(self, seconds: float, callers: float = 10**9) -> int:
        """Let so many callers at most be under way for so long; return the limit."""
        end = self.now + seconds * _SECOND
        while self.now < end:
            crowd = int(min(callers, self.law.limit))
            self.now += self.service_ns / min(crowd, self.workers)
            rtt = int(self.service_ns * max(1.0, crowd / self.workers))
            self.law.update(Sample(int(self.now) - rtt, rtt, crowd, self.dropped))
        return self.law.limit


odd_ints = st.one_of(st.integers(-10, 10), st.integers(0, 10**11), st.integers(-(10**40), 10**40))
samples = st.builds(
    Sample, odd_ints, odd_ints, odd_ints, st.booleans(), st.sampled_from(["", "a", "b"]) | st.text(max_size=2)
)
events = st.lists(st.just("memory"), max_size=2)


def test_it_is_a_law_that_hears_of_the_machine() -> None:
    law: Law = Knee()
    assert isinstance(law, Calibrated)


@given(
    told=st.lists(samples | st.tuples(events, odd_ints), max_size=200),
    minimum=st.integers(1, 5),
    spread=st.integers(0, 50),
)
def test_whatever_it_is_told_the_limit_is_a_whole_number_within_bounds(
    told: list[Sample | tuple[list[str], int]], minimum: int, spread: int
) -> None:
    law = Knee(minimum=minimum, maximum=minimum + spread)
    for each in told:
        limit = law.update(each) if isinstance(each, Sample) else law.calibrate(*each)
        assert type(limit) is int
        assert minimum <= limit <= minimum + spread
        assert limit == law.limit


@given(
    odd=st.lists(samples, max_size=50),
    probing=st.booleans(),
    rtts=st.lists(st.integers(0, 10**10), min_size=10, max_size=10),
)
def test_after_odd_samples_it_still_moves(odd: list[Sample], probing: bool, rtts: list[int]) -> None:
    """None of them may close a span that never ends, or a cut that forbids all others."""
    law = Knee()
    if probing:
        Line(law, 10).serve(1.5)
    for each in odd:
        law.update(each)
    now, before = 0, law.limit
    for k in range(2000):
        now += 100 * _MS
        law.update(Sample(now - rtts[k % 10], rtts[k % 10], 5, dropped=True))
    assert law.limit < before or law.limit == 1

"""Where the knee is, the limit goes; and whatever it is told, it stays a whole number within its bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.concurrency.law import Calibrated, Law, Sample
from batchlimit.concurrency.laws.knee.knee import Knee
from tests.depth import depth

_MS = 1_000_000
_SECOND = 1000 * _MS


class Backend:
    """So many workers, each call so long, and callers that fill the limit: rtt and throughput as they must be."""

    def __init__(self, law: Knee, workers: float, service_ms: float = 20.0) -> None:
        self.law, self.workers, self.service_ms = law, workers, service_ms
        self.now = 0.0
        self.dropped_every = 0
        self.limits: list[int] = []
        self.changes: list[tuple[int, int, str]] = []

    def serve(self, seconds: float, callers: float = 10**9) -> int:
        """Let so many callers at most be under way for so long; return the limit."""
        end, calls = self.now + seconds * _SECOND, 0
        while self.now < end:
            crowd = int(min(callers, self.law.limit))
            self.now += self.service_ms * _MS / min(crowd, self.workers)
            rtt = int(self.service_ms * _MS * max(1.0, crowd / self.workers))
            calls += 1
            dropped = self.dropped_every > 0 and calls % self.dropped_every == 0
            before, after = self.law.limit, self.law.update(Sample(int(self.now) - rtt, rtt, crowd, dropped))
            self.limits.append(after)
            if after != before:
                self.changes.append((before, after, self.law.state.why))
        return self.law.limit


odd_ints = st.integers(-10, 10) | st.integers(0, 10**11) | st.integers(-(10**40), 10**40)
names = st.sampled_from(["", "a", "b"]) | st.text(max_size=2)
samples = st.builds(Sample, odd_ints, odd_ints, odd_ints, st.booleans(), names)
events = st.lists(st.just("memory"), max_size=2)


def test_it_is_a_law_that_hears_of_the_machine() -> None:
    law: Law = Knee()
    assert isinstance(law, Calibrated)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"minimum": 0}, ValueError),
        ({"minimum": 5, "maximum": 4}, ValueError),
        ({"tolerance": 1.0}, ValueError),
        ({"initial": 2.5}, TypeError),
        ({"offset": 1.0}, TypeError),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        Knee(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("initial", "first"), [(1, 5), (7, 7), (99, 10)])
def test_an_initial_limit_out_of_bounds_is_taken_to_the_nearer_one(initial: int, first: int) -> None:
    assert Knee(initial=initial, minimum=5, maximum=10).limit == first


SIZES = [(1, 1, 4), (2, 2, 6), (5, 5, 10), (20, 20, 30)]
LARGE = [(100, 100, 135), (500, 500, 680)]
"""These take as long as all others together."""


@pytest.mark.parametrize(
    ("initial", "workers", "least", "most"),
    [(initial, *size) for initial in depth((1, 200), (1, 20, 200)) for size in (*SIZES, *depth([], LARGE))],
)
def test_the_limit_settles_at_the_knee(initial: int, workers: int, least: int, most: int) -> None:
    """However far off it began: each drain divides a queue that was taken for the time of a call by four."""
    backend = Backend(Knee(initial=initial), workers)
    backend.serve(240)
    backend.limits.clear()
    backend.serve(60)
    settled = sorted(backend.limits)
    # But for drains: half a second of 16.
    assert least <= settled[len(settled) // 10] <= settled[-1] <= most


def test_a_drain_is_told_from_trouble() -> None:
    backend = Backend(Knee(initial=20), 20)
    backend.serve(20)
    backend.changes.clear()
    backend.serve(60)
    fell = [(before, after, why) for before, after, why in backend.changes if after <= before / 2]
    assert len(fell) >= 3
    assert {why for *_, why in fell} == {"drain"}
    ends = [(before, after, why) for before, after, why in backend.changes if after >= 2 * before]
    assert len(ends) >= len(fell) - 1  # the last one may be under way
    assert {why for *_, why in ends} == {"drain"}


def test_the_limit_without_a_drain_is_known_during_one() -> None:
    law = Knee(initial=20)
    backend = Backend(law, 20)
    backend.serve(20)
    settled = [law.limit]
    while law.state.settled is None:
        backend.serve(0.01)
        settled.append(law.limit)
    assert law.limit <= settled[-2] / 2
    assert law.state.settled == settled[-2]
    while law.state.settled is not None:
        backend.serve(0.01)
    assert law.limit >= settled[-2] / 2


def test_it_says_why_the_limit_changes() -> None:
    backend = Backend(Knee(initial=2), 20)
    backend.serve(10)
    assert {why for before, after, why in backend.changes if after > before} <= {"", "drain"}, "the direction says it"
    backend.dropped_every, backend.changes = 10, []
    backend.serve(1)
    assert backend.changes[0][2] == "loss"
    backend.dropped_every, backend.changes = 0, []
    backend.serve(60, callers=4)
    assert "unused" in {why for before, after, why in backend.changes if after < before}


def test_calls_that_take_longer_without_a_queue_are_trusted() -> None:
    backend = Backend(Knee(initial=20), 20)
    backend.serve(40, callers=15)
    backend.serve(20)
    backend.changes.clear()
    backend.service_ms *= 3
    backend.serve(10)
    assert "trust" in {why for before, after, why in backend.changes if after > before}


def test_the_ratio_tells_how_much_longer_calls_take() -> None:
    backend = Backend(Knee(initial=10, minimum=10, maximum=10), 10)
    backend.serve(3)
    assert backend.law.state.ratio == pytest.approx(1, rel=0.1)
    backend.workers = 5
    backend.serve(1)
    assert backend.law.state.ratio == pytest.approx(2, rel=0.2)


def test_a_drain_in_which_mostly_short_calls_ended_makes_no_baseline_fall() -> None:
    """Seven calls of 0.6 s and three of 1.4 s end in 1.8 s: a long one had to begin in the first 0.4 s of it."""
    law = Knee()
    now = _SECOND
    while law.state.why != "drain":
        now += 50 * _MS
        law.update(Sample(now - _SECOND, _SECOND, 20, False))
    short = [(100 * place, 600) for place in range(7)]
    long = [(200 + 100 * place, 1400) for place in range(3)]
    for begin, rtt in sorted(short + long, key=sum):
        law.update(Sample(now + begin * _MS, rtt * _MS, 2, False))
    assert law.state.settled is None
    assert law.baselines[""] >= 1.0


def test_slower_calls_without_a_queue_are_let_in() -> None:
    """The time of a call says nothing of why: throughput does, when the limit moves."""
    backend = Backend(Knee(), workers=1000)
    backend.serve(10, callers=30)
    backend.service_ms = 60
    assert backend.serve(10, callers=90) >= 90


def test_a_backend_that_loses_workers_is_not_taken_for_a_slower_one() -> None:
    backend = Backend(Knee(), workers=40)
    backend.serve(20)
    before, backend.workers = backend.law.limit, 10
    backend.limits.clear()
    assert 10 <= backend.serve(2) <= 17
    assert max(backend.limits) <= before


def test_a_drain_that_shows_quick_calls_by_chance_brings_no_drain_that_the_others_do_not_share() -> None:
    """Alone it would see the queue of the others, take it for the time of a call, and get more than its share."""
    law, now, begun, drains = Knee(initial=8, offset=0), 0.0, list[float](), False
    while now < 110 * _SECOND:
        drains, drained = law.state.settled is not None, drains
        if drains and not drained:
            begun.append(now / _SECOND)
        is_chance = drains and 47 < now / _SECOND < 50
        rtt = (35 if is_chance else 50 if drains else 100) * _MS
        for _ in range(law.limit):
            now += rtt / law.limit
            law.update(Sample(int(now) - rtt, rtt, law.limit))
    assert [round(at / 16) for at in begun if at > 24] == [2, 3, 4, 5, 6]


def test_a_step_of_service_time_moves_no_knee() -> None:
    backend = Backend(Knee(), workers=20)
    before = backend.serve(30)
    backend.service_ms = 60
    backend.serve(30)
    assert backend.limits[-1] == pytest.approx(before, abs=6)


def test_a_first_limit_that_is_far_too_low_refuses_callers_for_less_than_half_a_second() -> None:
    assert Backend(Knee(initial=20), workers=100).serve(0.4, callers=50) > 50


def test_it_grows_only_while_it_is_in_use() -> None:
    backend = Backend(Knee(initial=20), workers=1000)
    assert backend.serve(30, callers=15) == 20
    assert backend.serve(1, callers=20) > 20


def test_a_limit_that_is_not_in_use_shrinks_while_others_fill_the_backend() -> None:
    """Once it is in use it would let in far more than the backend can take; if nobody queues, it comes back."""
    backend = Backend(Knee(initial=100), workers=1000)
    backend.serve(5, callers=40)
    backend.service_ms = 200
    assert backend.serve(1.5, callers=40) <= 60
    assert backend.serve(10, callers=40) >= 40


def test_a_limit_that_nobody_needs_any_more_comes_down() -> None:
    """Otherwise the next flood would be let in: twice the largest crowd of late is enough, or what it began with."""
    backend = Backend(Knee(initial=20), workers=1000)
    assert backend.serve(5, callers=200) > 200
    assert backend.serve(60, callers=30) in range(60, 64)
    assert backend.serve(60, callers=3) in range(20, 24)


@pytest.mark.parametrize(("rate", "seconds"), [(0.5, 60), (2, 16), (9, 4)])
def test_few_calls_move_it_as_well(rate: float, seconds: float) -> None:
    """Fewer than ten a second, all of them dropped: a law that waits for ten in a second would stand still."""
    law, now = Knee(), 0.0
    for _ in range(int(rate * seconds)):
        now += _SECOND / rate
        law.update(Sample(int(now) - 20 * _MS, 20 * _MS, 1, dropped=True))
    assert law.limit < 20


def test_many_drops_of_one_span_are_one_cut() -> None:
    backend = Backend(Knee(initial=100), workers=1000)
    backend.serve(0.5, callers=50)
    backend.dropped_every = 2
    backend.limits.clear()
    backend.serve(0.25, callers=50)
    assert set(backend.limits) == {100, 85}


def test_a_drop_now_and_then_is_an_accident() -> None:
    backend = Backend(Knee(initial=100), workers=1000)
    backend.dropped_every = 60
    assert backend.serve(10, callers=50) == 100


@pytest.mark.parametrize(
    "steps",
    [
        [(1.0, ["memory"], 85), (1.0, ["memory", "cpu"], 85), (1.1, ["cpu"], 85), (1.3, ["cpu"], 72), (9, [], 72)],
        [(0.0, [], 100), (5.0, ["memory"], 85), (0.0, ["memory"], 72)],
    ],
)
def test_a_round_of_watchers_cuts_once_a_span(steps: list[tuple[float, list[str], int]]) -> None:
    law = Knee(initial=100)
    for at, events, limit in steps:
        assert law.calibrate(events, int(at * _SECOND)) == limit


def test_drops_and_watchers_share_one_cut() -> None:
    backend = Backend(Knee(initial=100), workers=1000)
    backend.serve(1, callers=50)
    backend.dropped_every = 2
    assert backend.law.calibrate(["memory"], int(backend.now)) == 85
    assert backend.serve(0.15, callers=50) == 85


def test_a_cut_during_a_drain_outlasts_it() -> None:
    backend = Backend(Knee(), workers=20)
    before = backend.serve(1)
    while backend.law.limit > 0.7 * before:
        before = max(backend.law.limit, backend.serve(0.05))
    backend.law.calibrate(["memory"], int(backend.now))
    assert backend.serve(1) <= round(0.85 * before)


def test_a_strained_machine_gets_no_more_calls_until_it_is_well() -> None:
    backend = Backend(Knee(initial=20), workers=1000)
    backend.law.calibrate(["memory"], 0)
    assert backend.serve(10) == 17
    backend.law.calibrate([], int(backend.now))
    assert backend.serve(1) > 17


def test_watchers_that_ended_do_not_hold_it_for_ever() -> None:
    backend = Backend(Knee(initial=20), workers=1000)
    backend.law.calibrate(["memory"], 0)
    assert backend.serve(61) > 17


def test_a_baseline_from_a_crowded_start_is_put_right() -> None:
    """The first thing it sees is a queue of ten times the workers: only another limit can tell."""
    law = Knee(initial=100)
    backend = Backend(law, workers=10)
    assert 10 <= backend.serve(30) <= 17


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
    draining=st.booleans(),
    rtts=st.lists(st.integers(0, 10**10), min_size=10, max_size=10),
)
def test_after_odd_samples_it_still_moves(odd: list[Sample], draining: bool, rtts: list[int]) -> None:
    """None of them may begin a span that never ends, or be a cut that forbids all others."""
    law = Knee()
    if draining:
        Backend(law, 10).serve(2.05)
    for each in odd:
        law.update(each)
    now, before = 0, law.limit
    # Long enough for ten spans of the longest baseline: what it is told may come in the middle of a drain.
    for k in range(3000):
        now += 200 * _MS
        law.update(Sample(now - rtts[k % 10], rtts[k % 10], 5, dropped=True))
    assert law.limit < before or law.limit == 1


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 500)), min_size=1, max_size=300))
def test_a_limit_that_is_not_in_use_never_grows(calls: list[tuple[int, int]]) -> None:
    """Neither quick nor slow calls are a reason, as long as fewer than 80 % of the limit are under way.

    After the first drains, which go to a twentieth, it goes back to what it was before.
    """
    law, now, before = Knee(initial=100), 0, 100
    for gap_ms, rtt_ms in calls:
        now += gap_ms * _MS
        limit = law.update(Sample(now - rtt_ms * _MS, rtt_ms * _MS, max(1, int(0.79 * law.limit))))
        assert limit <= before
        before = before if "under way" in repr(law) else limit


def test_it_shows_what_it_holds_to_be_true() -> None:
    backend = Backend(Knee(), workers=20)
    backend.serve(1)
    assert "20.000 ms" in repr(backend.law)


def test_a_short_wait_beside_long_calls_is_no_queue_to_shrink_for() -> None:
    """One of twenty calls takes a second, the others a millisecond, and then six: nobody gave the long ones a name."""
    law = Knee(maximum=20)
    for k in range(10_100):  # the last half second lies between two drains
        rtt = 1000 * _MS if k % 20 == 0 else (1 if k < 10_000 else 6) * _MS
        law.update(Sample(5 * _MS * k - rtt, rtt, 20))
    assert law.state.ratio < 1.3
    assert law.limit == 20


class Fleet:
    """Laws before one line of workers: each fills its limit; a call takes as long as all of them together make it."""

    def __init__(self, laws: list[Knee], workers: int, service_ms: float = 50.0) -> None:
        self.laws, self.workers, self.service_ms = laws, workers, service_ms
        self.now = 0.0
        self.offsets = [0] * len(laws)
        self.callers = [10**9] * len(laws)

    def join(self, law: Knee, callers: int = 10**9) -> None:
        self.laws.append(law)
        self.offsets.append(0)
        self.callers.append(callers)

    def serve(self, seconds: float) -> list[int]:
        """Let each limiter end its calls in turn for so long; return the limits."""
        end = self.now + seconds * _SECOND
        while self.now < end:
            for place, law in enumerate(self.laws):
                crowd = sum(self._crowd(each) for each in range(len(self.laws)))
                rtt = int(self.service_ms * _MS * max(1.0, crowd / self.workers))
                mine = self._crowd(place)
                for _ in range(mine):
                    self.now += rtt / crowd
                    law.update(Sample(int(self.now) + self.offsets[place] - rtt, rtt, mine))
        return [law.limit for law in self.laws]

    def _crowd(self, place: int) -> int:
        return min(self.laws[place].limit, self.callers[place])


@pytest.mark.parametrize("limiters", [2, 4, 8])
def test_limiters_of_one_backend_hold_together(limiters: int) -> None:
    """A limiter of many gets more answers for more calls, at the cost of the others: that is no reason to grow."""
    fleet = Fleet([Knee() for _ in range(limiters)], workers=40)
    fleet.serve(60)
    for _ in range(5):
        limits = fleet.serve(16)  # four seconds before the next drain
        assert 40 <= sum(limits) <= 40 * 3
        assert min(limits) > 0.5 * max(limits)


def test_a_limiter_that_joins_gets_its_share() -> None:
    """The first that it sees is the queue of the others; the next common drain shows the time of a call."""
    fleet = Fleet([Knee() for _ in range(4)], workers=40)
    fleet.serve(60)
    fleet.join(Knee())
    limits = fleet.serve(90)
    assert min(limits) > 0.5 * max(limits)


def test_a_limiter_that_no_limit_holds_learns_from_the_drains_of_the_others() -> None:
    """It takes the queue that it came to for the time of a call, and has too few callers to fill its limit."""
    fleet = Fleet([Knee() for _ in range(8)], workers=40)
    fleet.serve(60)
    fleet.join(Knee(initial=60), callers=20)
    limits = fleet.serve(90)
    assert max(limits) < 2 * min(limits)


@pytest.mark.parametrize(("calm", "deep"), [(0.0, True), (4.0, False)])
def test_without_calm_before_it_the_first_drain_is_deep(calm: float, deep: bool) -> None:
    """Many limiters that start in an overload: to let in a quarter each would still be a queue."""
    backend = Backend(Knee(initial=20), workers=1000, service_ms=50)
    backend.serve(calm + 0.5, callers=10)
    backend.service_ms = 150
    backend.limits.clear()
    backend.serve(2)
    assert (min(backend.limits) == 1) is deep


def drains_of_a_start(callers: int) -> int:
    """The least limit of the first seconds: so many callers, but for a second and a half in which the limit is full."""
    backend = Backend(Knee(initial=20), workers=1000, service_ms=400)
    backend.now = 2.5 * _SECOND
    backend.serve(1.2, callers=callers)
    backend.serve(5, callers=12)
    return min(backend.limits)


def test_a_new_limiter_that_saw_no_calm_drains_deep_in_use_or_not() -> None:
    """What calls take looks normal to a limiter that came to a queue, and grew there until it was not in use."""
    assert drains_of_a_start(callers=1000) <= 2


def test_a_new_limiter_whose_limit_was_never_reached_refuses_nobody() -> None:
    """A service at half of what it carries: there is no reason to turn anybody away."""
    assert drains_of_a_start(callers=15) == 20


def test_a_limit_that_a_hiccup_reached_is_no_reason_to_drain() -> None:
    backend = Backend(Knee(initial=20), workers=1000)
    backend.serve(0.5, callers=10)
    backend.serve(0.1, callers=25)
    backend.limits.clear()
    backend.serve(16, callers=10)
    assert min(backend.limits) >= 20


def test_after_calm_a_new_limiter_that_is_not_in_use_drains_no_more() -> None:
    """Each drain turns callers away: none is needed to see how long calls take where nobody queues."""
    backend = Backend(Knee(initial=20), workers=1000)
    backend.serve(4.9, callers=10)
    backend.limits.clear()
    assert backend.serve(24, callers=10) == 20
    assert set(backend.limits) == {20}

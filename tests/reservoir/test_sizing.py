"""How much each sizer leases, and how closely the estimate of demand follows the callers."""

import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.batching import TimeBatch
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import InstanceCount
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.sizing import BatchSizer, Demand, FixedBatch, FractionBatch, GrowingBatch, Usage, wanted
from tests.reservoir.alone import Alone

KERNEL = 0.25
HUNDRED = Quota(100.0, 100)
LARGE = Quota(1000.0, 10_000)
BOTH = Quota(100.0, 100, [Quota(100.0, 50)])


@pytest.mark.parametrize(
    ("sizer", "quota", "demand", "last", "left", "want"),
    [
        (TimeBatch(), LARGE, 0.0, 0, 0, 0),
        (TimeBatch(), LARGE, 100.0, 0, 0, 40),
        (TimeBatch(), LARGE, 100.0, 500, 30, 40),
        (TimeBatch(0.1), LARGE, 100.0, 0, 0, 10),
        (TimeBatch(60.0), LARGE, 100.0, 0, 0, 400),  # 0.4 of the 10 s in which it fills
        (TimeBatch(), BOTH, 100.0, 0, 0, 20),  # 0.4 of the 0.5 s in which the smaller one fills
        (FixedBatch(10), LARGE, 0.0, 0, 0, 10),
        (FixedBatch(10), LARGE, 1e6, 500, 500, 10),
        (FractionBatch(), LARGE, 1e6, 0, 0, 10),
        (FractionBatch(), HUNDRED, 1e6, 0, 0, 1),  # never nothing
        (FractionBatch(0.1), HUNDRED, 0.0, 0, 0, 10),
        (FractionBatch(0.1), BOTH, 0.0, 0, 0, 5),
        (GrowingBatch(), LARGE, 0.0, 0, 0, 10),
        (GrowingBatch(first=4), LARGE, 0.0, 0, 0, 4),
        (GrowingBatch(first=1), LARGE, 0.0, 0, 0, 1),
        (GrowingBatch(), LARGE, 0.0, 10, 0, 15),
        (GrowingBatch(), LARGE, 0.0, 15, 0, 23),
        (GrowingBatch(), LARGE, 0.0, 23, 1, 11),
        (GrowingBatch(), LARGE, 0.0, 1, 1, 1),
        (GrowingBatch(), LARGE, 0.0, 1, 0, 2),
        (GrowingBatch(grow=2.0, shrink=0.9), LARGE, 0.0, 10, 0, 20),
        (GrowingBatch(grow=2.0, shrink=0.9), LARGE, 0.0, 10, 5, 9),
    ],
)
def test_each_sizer_wants_what_its_rule_says(
    sizer: BatchSizer, quota: Quota, demand: float, last: int, left: int, want: int
) -> None:
    assert sizer.want(Usage(quota, demand, last, left)) == want


@pytest.mark.parametrize(("quota", "want"), [(LARGE, 120), (HUNDRED, 60)])
def test_of_a_rich_bucket_the_default_leases_for_longer(quota: Quota, want: int) -> None:
    assert TimeBatch().want(Usage(quota, 100.0, 0, 0, rich=True)) == want


@pytest.mark.parametrize("sizer", [TimeBatch(), FixedBatch(500), FractionBatch(), GrowingBatch()])
def test_a_key_that_is_refused_a_million_times_wants_no_more_than_its_burst(sizer: BatchSizer) -> None:
    last = 0
    for _ in range(1_000_000):
        before, last = last, sizer.want(Usage(BOTH, 1e300, last, 0))
        if last == before:  # from here on every answer is this one
            break
    assert 1 <= wanted(sizer, Usage(BOTH, 1e300, last, 0)) <= BOTH.largest_cost


WRONG: list[Any] = [-1, 2.5, True]


@pytest.mark.parametrize(
    ("kind", "arguments", "error", "message"),
    [
        (TimeBatch, {"seconds": -1}, ValueError, "TimeBatch.seconds must be at least 0, not -1"),
        (TimeBatch, {"seconds": math.inf}, ValueError, "TimeBatch.seconds must be a finite number, not inf"),
        (TimeBatch, {"seconds": True}, TypeError, "TimeBatch.seconds must be a number, not True"),
        (TimeBatch, {"plenty": math.nan}, ValueError, "TimeBatch.plenty must be a finite number, not nan"),
        (FractionBatch, {"fraction": "x"}, TypeError, "FractionBatch.fraction must be a number, not 'x'"),
        (FractionBatch, {"fraction": 2}, ValueError, "FractionBatch.fraction must be at least 0 and at most 1, not 2"),
        (
            GrowingBatch,
            {"first": 0},
            ValueError,
            "GrowingBatch.first must be a whole number of at least 1 token, not 0",
        ),
        (
            GrowingBatch,
            {"first": 2.5},
            ValueError,
            "GrowingBatch.first must be a whole number of at least 1 token, not 2.5",
        ),
        (GrowingBatch, {"grow": 0.5}, ValueError, "GrowingBatch.grow must be at least 1, not 0.5"),
        (GrowingBatch, {"shrink": -1}, ValueError, "GrowingBatch.shrink must be at least 0 and at most 1, not -1"),
        *((FixedBatch, {"tokens": n}, ValueError, f"a batch must be a whole number of tokens, not {n}") for n in WRONG),
        (
            Options,
            {"sizer": FixedBatch},
            TypeError,
            "sizer must be made, like FixedBatch(100): FixedBatch is the class",
        ),
        (Options, {"sizer": 7}, TypeError, "sizer must say how much to want, like TimeBatch(), not 7"),
    ],
)
def test_a_sizer_that_makes_no_sense_is_an_error_where_it_is_made(
    kind: Callable[..., object], arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        kind(**arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (TimeBatch, {"seconds": 0, "plenty": 0}),
        (FixedBatch, {"tokens": 0}),
        (FractionBatch, {"fraction": 0}),
        (FractionBatch, {"fraction": 1}),
        (GrowingBatch, {"first": 1, "grow": 1, "shrink": 0}),
        (GrowingBatch, {"shrink": 1}),
    ],
)
def test_the_bounds_of_a_sizer_make_one(kind: Callable[..., object], arguments: dict[str, Any]) -> None:
    kind(**arguments)


class Says:
    """A sizer of the user's own."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def want(self, usage: Usage) -> int:
        answer: int = self._answer
        return answer


@pytest.mark.parametrize(
    ("answer", "want"),
    [(0, 0), (7, 7), (7.9, 7), (True, 1), (-5, 0), (100, 50), (10**400, 50), (math.inf, 50), (-math.inf, 0)],
)
def test_any_number_that_a_sizer_wants_is_taken_as_whole_tokens_within_the_burst(answer: Any, want: int) -> None:
    found = wanted(Says(answer), Usage(BOTH, 0.0, 0, 0))
    assert (found, type(found)) == (want, int)


@pytest.mark.parametrize("answer", [None, "7", math.nan, [7], 7j])
def test_what_is_no_number_is_an_error_that_names_the_sizer_and_the_value(answer: Any) -> None:
    with pytest.raises(TypeError, match=r"Says.want\(\) must return a whole number of tokens, not ") as error:
        wanted(Says(answer), Usage(BOTH, 0.0, 0, 0))
    assert repr(answer) in str(error.value)


@pytest.mark.parametrize("gap", [0.0005, 0.01, 0.1, 0.25])
@pytest.mark.parametrize("tokens", [1, 20])
def test_demand_converges_to_a_steady_rate_within_a_few_kernels(gap: float, tokens: int) -> None:
    demand, now = Demand(100.0), 100.0
    while now < 100.0 + 5 * KERNEL:
        now += gap
        demand.observe(tokens, now)
    assert demand.rate == pytest.approx(tokens / gap, rel=0.02)


def test_demand_follows_a_change_and_forgets_the_past() -> None:
    demand = Demand(0.0)
    timeline: list[tuple[float, int, Any]] = [  # until, tokens every 10 ms, tokens/s at the end
        (1.5, 10, pytest.approx(1000.0, rel=0.01)),
        (1.5 + KERNEL, 1, pytest.approx(100.0 + 900.0 / math.e, rel=0.01)),
        (3.5, 1, pytest.approx(100.0, rel=0.02)),
        (6.0, 0, pytest.approx(0.0, abs=0.1)),
    ]
    now = 0.0
    for until, tokens, rate in timeline:
        while now < until - 1e-9:
            now += 0.01
            demand.observe(tokens, now)
        assert (until, demand.rate) == (until, rate)


def test_demand_decays_by_e_in_a_kernel_of_silence() -> None:
    demand = Demand(0.0)
    demand.observe(100, 0.0)
    before = demand.rate
    assert [demand.left(at) for at in (-1.0, 0.0, KERNEL)] == pytest.approx([before, before, before / math.e])
    demand.observe(0, KERNEL)
    assert demand.rate == pytest.approx(before / math.e)


def test_one_call_is_not_repeated_demand() -> None:
    demand = Demand(0.0)
    demand.observe(5, 0.0)
    assert [demand.is_repeated(cost) for cost in (4, 5)] == [True, False]


@given(st.lists(st.tuples(st.integers(-1000, 1000), st.floats(-0.1, 2.0)), max_size=30))
def test_demand_is_never_negative(observations: list[tuple[int, float]]) -> None:
    """Not even where tokens that were counted turn out never to have been spent."""
    demand, now = Demand(0.0), 0.0
    for tokens, pause in observations:
        now += pause
        demand.observe(tokens, now)
        assert demand.rate >= 0.0


# How many instances there are, as a table of (when a key told how many, how many there are now)


@pytest.mark.parametrize(
    ("told", "instances"),
    [
        ([], 0),
        ([(100.0, 3)], 3),
        ([(100.0, 3), (101.0, 1)], 3),
        ([(100.0, 1), (159.0, 4)], 4),
        ([(100.0, 4), (161.0, 2)], 4),  # the minute before counts still
        ([(100.0, 4), (161.0, 2), (222.0, 1)], 2),
        ([(100.0, 4), (300.0, 2)], 2),  # two minutes later: nothing is left of it
        ([(100.0, 4), (101.0, 1), (102.0, 1)], 4),
        ([(100.0, 4), (160.0, 1), (165.0, 1), (215.0, 1), (225.0, 1)], 1),  # a minute ends with its last instant
        ([(100.0, 4), (220.0, 1)], 1),
        ([(100.0, 4), (250.0, 2)], 2),
        ([(100.0, 4), (300.0, 0)], 0),
        ([(100.0, 9), (159.9, 9), (161.0, 1), (200.0, 2), (225.0, 1)], 2),
    ],
)
def test_the_most_of_the_last_minute_or_two(told: list[tuple[float, int]], instances: int) -> None:
    instance_count = InstanceCount()
    for now, n in told:
        instance_count.learn(n, now)
    assert instance_count.instances == instances


# A process that is alone gets the whole burst, call by call, before it is refused for the first time


_RATES = (1, 2, 3, 5, 7, 9, 10, 13, 20, 33, 50, 100, 1_000)


@pytest.mark.parametrize(
    "quota", [f"{rate}/s{burst}" for rate in _RATES for burst in ("", " burst 101", " burst 2000")]
)
@pytest.mark.parametrize("round_trip", [0.0, 0.001])
def test_a_lone_process_gets_the_whole_burst_before_the_first_refusal(quota: str, round_trip: float) -> None:
    alone = Alone(Quota.parse(quota), TimeBatch(), round_trip, Random(0))
    admitted = 0
    while alone.call(1) == 0.0:
        admitted += 1
        alone.pass_by(1e-6)
    assert admitted >= Quota.parse(quota).burst

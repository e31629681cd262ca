"""When an instance keeps away from the bucket: where the bucket was short, and only there."""

import math
from collections.abc import Iterator
from random import Random

import pytest

from batchlimit.base.decision import whole_seconds
from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.messages import Ask, Grant
from batchlimit.quota.failure_policy import CLOSED
from batchlimit.quota.overrides.code import Rank
from batchlimit.quota.overrides.override import KeyRule
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import InstanceCount
from batchlimit.reservoir.denial_cache import NO_DENIALS, DenialCache
from batchlimit.reservoir.forecast import Forecast
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.sizing import DEFAULT_SIZER, FixedBatch, FractionBatch
from batchlimit.reservoir.waiter import Fetch
from tests.depth import depth
from tests.reservoir.alone import Alone, costs, pauses
from tests.reservoir.entry import DEAD, HUNDRED, Entry
from tests.reservoir.world import about, answer

THOUSAND = Quota(1000.0, 1000)  # its pace is 50 ms, in which 50 tokens flow in
SMALL = Quota(100.0, 10)  # its pace is a fifth of the time to fill: 20 ms


def fetch(
    need: int, *, queued: int | None = None, cost: int | None = None, repeated: bool = False, sent: float = 0.0
) -> Fetch:
    queued = need if queued is None else queued
    ask = Ask("a", 1, need, queued, queued)
    return Fetch(ask, THOUSAND, sent, need if cost is None else cost, repeated)


def learned(
    asked: Fetch, grant: Grant, *, quota: Quota = THOUSAND, demand: float = 0.0, now: float = 0.0, jitter: float = 1.0
) -> DenialCache:
    return DenialCache.learned(asked, grant, quota, demand, now, jitter, now + grant.starts_in)


@pytest.mark.parametrize(
    ("asked", "grant", "demand", "pause"),
    [
        # all that was wanted, or cut down to the instance's share: whatever else it wants, the bucket has more
        (fetch(10), answer(10), 1000.0, 0.0),
        (fetch(10, queued=90), answer(20), 1000.0, 0.0),
        (fetch(1), answer(1), 1e6, 0.0),
        (fetch(0), answer(0), 1e6, 0.0),
        # refused: until it fits, but no less than a pace
        (fetch(10), answer(0, retry_after=0.2, level=8), 0.0, 0.2),
        (fetch(10), answer(0, retry_after=0.01, level=9), 0.0, 0.05),
        (fetch(10), answer(0, retry_after=0.2), 0.0, 0.2),  # short of this instance's share, with much in the bucket
        # the last drops of a bucket: until more have flowed in than a few callers ask for
        (fetch(1, queued=9), answer(3, level=0), 1000.0, 0.05),
        (fetch(1, queued=9), answer(3, level=49), 1000.0, 0.05),
        (fetch(1, queued=9), answer(3, level=50), 1000.0, 0.0),
        (fetch(0), answer(0, level=0), 1000.0, 0.05),
        # what is leased fills the bucket: nothing is refilled before the next ask
        (fetch(10, queued=1000), answer(980, level=0), 1e6, 0.0),
        (fetch(10, queued=1000), answer(900, kept=60, level=0), 1e6, 0.0),
        (fetch(10, queued=1000), answer(900, level=0), 1e6, 0.05),
        # though dry, it gave as much as comes to be wanted in a pace
        (fetch(1, queued=9), answer(3, level=0), 50.0, 0.0),
        (fetch(1, queued=9), answer(3, level=0), 60.0, 0.0),
        (fetch(1), answer(1, level=0), 0.0, 0.0),
        # a grant that begins later: nothing to ask for before
        (fetch(10), answer(10, starts_in=0.3, level=-10), 0.0, 0.3),
    ],
)
def test_a_host_pauses_where_the_bucket_was_short(asked: Fetch, grant: Grant, demand: float, pause: float) -> None:
    denials = learned(asked, grant, demand=demand)
    assert denials.dry_for(1000, 0.0) == about(pause)
    assert denials.wait(1000, 0.0) == about(pause)


@pytest.mark.parametrize(("instances", "pause"), [(0, 0.05), (2, 0.05), (4, 0.1), (8, 0.2), (200, 0.2)])
def test_the_more_hosts_the_longer_the_pace(instances: int, pause: float) -> None:
    """As long as an instance accrues 25 tokens, but no longer than 200 ms."""
    denials = learned(fetch(1, queued=9), answer(3, level=0, active_instances=instances), demand=1000.0)
    assert denials.dry_for(5, 0.0) == about(pause)


@pytest.mark.parametrize(
    ("quota", "retry_after", "pause"),
    [
        (Quota(100.0, 1), 0.010, 0.007),
        (Quota(100.0, 1), 0.002, 0.0),
        (Quota(100.0, 1), 0.0031, 0.0001),  # no pace where a token takes longer: there is an ask a token at most
        (Quota(100.0, 5), 0.002, 0.0),  # nor where it takes as long
        (Quota(200.0, 10), 0.002, 0.01),  # two tokens in a pace
        (THOUSAND, 0.06, 0.057),
        (THOUSAND, 0.01, 0.05),
    ],
    ids=str,
)
def test_the_way_of_an_ask_is_not_lost_to_a_caller_that_does_not_wait(
    quota: Quota, retry_after: float, pause: float
) -> None:
    """The answer took 3 ms: an ask that leaves as much before the token finds it. A caller is told the safe time."""
    denials = learned(fetch(1), answer(0, retry_after=retry_after, level=0), quota=quota, now=0.003)
    assert denials.dry_for(1, 0.003) == about(pause)
    assert denials.wait(1, 0.003) >= retry_after - 1e-9


@pytest.mark.parametrize(("cost", "pauses"), [(1, False), (9, False), (10, True), (11, True), (1000, True)])
def test_a_refusal_holds_for_this_cost_or_more(cost: int, pauses: bool) -> None:
    """The cost that was refused is that of the first in line, whatever of it was at hand already."""
    denials = learned(fetch(4, cost=10), answer(0, retry_after=0.4, level=2))
    assert (denials.dry_for(cost, 0.0) > 0.0) == pauses
    assert denials.wait(cost, 0.0) == about(0.4 if pauses else 0.0)


def test_when_the_bucket_is_dry_it_is_dry_for_every_cost_but_none() -> None:
    denials = learned(fetch(0), answer(0, level=0), demand=1000.0)
    assert [denials.dry_for(cost, 0.0) > 0.0 for cost in (0, 1, 50)] == [False, True, True]


@pytest.mark.parametrize(
    ("asked", "quota", "large_cost"),
    [
        (fetch(1, queued=9), THOUSAND, 50.0),  # refilled in a pace: its caller was told to come back then
        (fetch(1, queued=9), Quota(100.0, 15), 3.0),
        (fetch(0), THOUSAND, 2.0),  # it was fetched ahead, and nobody was told to come back
        (fetch(1, queued=9), SMALL, math.inf),  # less than three in a pace: no dry spell
    ],
)
def test_a_dry_spell_after_a_grant_does_not_hold_for_a_large_cost(
    asked: Fetch, quota: Quota, large_cost: float
) -> None:
    assert (
        learned(asked, answer(0 if asked.ask.need == 0 else 3, level=0), quota=quota, demand=1e4).large_cost
        == large_cost
    )


def test_nothing_is_asked_for_before_a_grant_for_later_begins() -> None:
    denials = learned(fetch(10), answer(10, starts_in=0.3, level=-10))
    assert [denials.dry_for(cost, 0.0) for cost in (0, 1)] == [0.0, about(0.3)]


def test_an_ask_leaves_before_the_token_by_what_the_bucket_may_have_rounded_up() -> None:
    assert learned(fetch(1), answer(0, retry_after=0.01, level=0), quota=Quota(100.0, 1), now=0.003).dry_until < 0.01


def test_a_long_wait_is_told_in_full_but_kept_for_half_a_second() -> None:
    """A limit may be raised meanwhile, or tokens refunded, by another instance."""
    denials = learned(fetch(10), answer(0, retry_after=3600.0, level=0))
    assert (denials.dry_for(10, 0.0), denials.wait(10, 0.0)) == (0.5, 3600.0)
    assert (denials.dry_for(10, 1.0), denials.wait(10, 1.0)) == (0.0, 3599.0)


def test_the_answer_to_a_repeated_ask_says_nothing_about_this_one() -> None:
    denial = answer(0, retry_after=0.4, level=0)
    assert learned(fetch(10)._replace(repeated=True), denial).dry_for(10, 0.0) == 0.0


@pytest.mark.parametrize(
    ("until", "pause", "wait"), [(math.inf, 1.0, math.inf), (109.0, 1.0, 9.0), (100.5, 0.5, 0.5), (99.0, 0.01, 0.01)]
)
def test_a_hold_is_looked_at_each_second_and_lasts_until_it_was_ended(until: float, pause: float, wait: float) -> None:
    held = DenialCache.holding(until, 100.0)
    assert [held.dry_for(1, 100.0), held.wait(1, 100.0)] == pytest.approx([pause, wait])


@pytest.mark.parametrize(
    ("quota", "max_wait", "wait", "asks_after"),
    [
        # of a small burst two paces before its cost fits: a pace is 20 ms at 10/s burst 1, and a grant may begin later
        (Quota(10.0, 1), 0.1, 0.4, 0.36),
        (Quota(10.0, 3), 0.3, 0.4, 0.28),
        # but not sooner than the shortest pace after the last ask, nor by more than half of how far ahead grants begin
        (Quota(10.0, 1), 0.1, 0.03, 0.02),
        (Quota(10.0, 1), 0.02, 0.4, 0.39),
        # who does not wait, and of a burst in which more is refilled meanwhile: when it fits
        (Quota(10.0, 1), 0.0, 0.4, 0.4),
        (Quota(10.0, 4), 0.4, 0.4, 0.4),
    ],
)
def test_who_waits_at_a_small_burst_asks_before_its_cost_fits(
    quota: Quota, max_wait: float, wait: float, asks_after: float
) -> None:
    asked = fetch(1)._replace(ask=Ask("a", 1, 1, 1, 1, max_wait=max_wait))
    denials = learned(asked, answer(0, retry_after=wait, level=0), quota=quota)
    assert denials.asks_at == about(asks_after)
    assert denials.dry_for(1, 0.0) == about(wait)  # who does not wait is refused by memory until then


class Overtaken(KeyState):
    """Each look at what is denied finds another answer: a thread with the lock takes them in meanwhile."""

    answers: Iterator[DenialCache] = iter(())
    denials = property(lambda self: next(self.answers), lambda *_: None)


def test_a_look_without_the_lock_goes_by_one_answer() -> None:
    state = Overtaken(THOUSAND, CLOSED, "full", InstanceCount(), 0.0, "key", Rank(0, 0.0))
    state.answers = iter([DenialCache.dry(0.2, 1, 0.0, large_cost=2.0), NO_DENIALS])
    assert not Forecast(state).denies(5, 0.0)


# What a refused caller is told is enough: after exactly that time it is admitted, if its process is alone


_ONE = ("10/s", "100/s burst 20", "10/minute", "2/s burst 40", "100/s", "1/s burst 1", "1000/s burst 100", "10/hour")
_SEVERAL = (
    "10/s burst 20; 100/hour",
    "5/s burst 5; 60/minute burst 30; 1000/day burst 100",
    "100/s burst 10; 20/minute burst 60",
    "1/s burst 50; 1000/hour burst 20",
)
_ROUNDED = 677
"""The seed of a caller who was told an instant that a float cannot tell from the one at which its tokens are there."""
_SIZERS = (DEFAULT_SIZER, FixedBatch(0), FixedBatch(1), FixedBatch(7), FractionBatch())


@pytest.mark.parametrize("seed", sorted({*range(depth(40, 3000)), _ROUNDED}))
@pytest.mark.parametrize("owing", [False, True], ids=["paid", "owing"])
@pytest.mark.parametrize("quotas", [_ONE, _SEVERAL], ids=["one bandwidth", "several"])
def test_who_waits_as_long_as_it_was_told_is_admitted(quotas: tuple[str, ...], owing: bool, seed: int) -> None:
    chance = Random(seed)
    quota = Quota.parse(chance.choice(quotas))
    alone = Alone(quota, chance.choice(_SIZERS), chance.choice([0.0, 0.0, 0.002, 0.05]), chance)
    largest = quota.largest_cost
    for _ in range(chance.randint(5, 60)):
        cost, wait = costs(largest, chance), 0.0
        match chance.choice(["call"] * 10 + ["deny"] * 2 + ["wait", "refund", "owe"] + ["pass"] * 5):
            case "call":
                wait = alone.call(cost)
            case "deny":
                wait = alone.deny(cost)
            case "wait":
                wait = alone.call(cost, patience=chance.choice([0.01, 0.3, 1.0]))
            case "refund":
                alone.refund(chance.choice([1, 2]))
            case "owe" if owing and alone.owed < 5 * largest and min(each.rate for each in quota.bandwidths) >= 0.2:
                alone.owe(chance.choice([1, 3, largest, 2 * largest + 1]))
            case _:
                alone.pass_by(pauses(quota, chance))
        if wait and chance.random() < 0.4:
            alone.pass_by(wait)
            assert (alone.call(cost), cost, wait) == (0.0, cost, wait)


# The bucket hears how many tokens an instance refused its callers: for people who look at a fleet


def refusing(entry: Entry, at: float = 0.0) -> None:
    """Have the bucket refuse a caller for half a second, and memory one more of cost 2."""
    entry.refuse(entry.fetch(entry.join(1, NO_WAIT), at), at)
    entry.reservoir.to_wake()
    entry.reservoir.admission.deny(2, at + 0.1)


def test_an_ask_tells_of_the_tokens_that_were_refused_since_the_last_one() -> None:
    entry = Entry()
    refusing(entry)
    fetch = entry.fetch(entry.join(1), 0.6)
    assert fetch.ask.refused == 3
    entry.grant(fetch, 0.6, tokens=1)
    assert entry.fetch(entry.join(1), 0.7).ask.refused == 0


def test_what_may_not_have_arrived_is_told_again() -> None:
    entry = Entry()
    refusing(entry)
    lost = entry.fetch(entry.join(1), 0.6)
    entry.reservoir.failed(lost, DEAD, 0.6)
    assert entry.fetch(entry.join(1), 1.0).ask.refused >= 3


def test_an_ask_tells_of_the_tokens_that_were_only_to_be_refused() -> None:
    entry = Entry(KeyRule(HUNDRED, "shadow"))
    entry.refuse(entry.fetch(passed := entry.join(4, NO_WAIT)), retry_after=0.5)
    fetch = entry.fetch(entry.join(1), 0.6)
    assert (fetch.ask.refused, fetch.ask.shadow_refused) == (0, 4)
    entry.grant(fetch, 0.6, tokens=1)
    fetch = entry.fetch(entry.join(1), 0.7)
    assert fetch.ask.shadow_refused == 0
    entry.grant(fetch, 0.7, tokens=1)
    entry.reservoir.leave(passed, 0.8)  # nobody untells it
    assert entry.fetch(entry.join(1), 0.9).ask.shadow_refused == 0


# A Retry-After is kept, and is no second longer than the true wait rounded up, if the process is alone


QUOTAS = (
    "1/s", "2/s", "10/s", "3/s burst 1", "10/s burst 2", "1/3s",
    "5/minute", "7/minute burst 2", "1/minute", "10/hour", "100/day",
    "5/minute; 100/day", "1/s burst 3; 20/minute", "10/s burst 20; 100/hour",
)  # fmt: skip
PART = 2
"""Costs are at most this part of the burst. Where more is asked for, tokens that were spent and not yet reported may
delay it: the caller is told the latest time."""
ON_THE_WAY = 20e-6
"""Seconds that a request takes to arrive, at the least."""


def refused(quota: Quota, seed: int) -> tuple[Alone, int, float]:
    """Play a story until somebody is refused; return at what cost, and what it was told (s)."""
    chance = Random(seed)
    alone = Alone(quota, DEFAULT_SIZER, chance.choice([0.0, 0.0002, 0.002]), chance)
    for _ in range(chance.randint(0, 12)):
        alone.call(costs(quota.largest_cost, chance))
        alone.pass_by(pauses(quota, chance))
    while True:
        cost = min(costs(quota.largest_cost, chance), max(1, quota.largest_cost // PART))
        if wait := alone.call(cost):
            return alone, cost, wait


@pytest.mark.parametrize("quota", QUOTAS)
def test_what_is_told_is_kept_and_is_no_second_too_long(quota: str) -> None:
    """Whoever is told a wait does not know how much of its next request's way the bucket has counted already."""
    too_long = 0
    for seed in range(depth(40, 1000)):
        alone, cost, wait = refused(Quota.parse(quota), seed)
        told = whole_seconds(wait) or 0
        alone.pass_by(told + ON_THE_WAY)
        assert alone.call(cost) == 0.0, (seed, cost, wait)
        sooner, cost, _ = refused(Quota.parse(quota), seed)
        sooner.pass_by(told - 1 - sooner.round_trip)
        too_long += told > 1 and sooner.call(cost) == 0.0
    assert too_long == 0

"""The bucket: what is refilled, who gets how much of it, what comes back, and what a refusal promises."""

import math
from heapq import heappop, heappush
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level, Spend
from batchlimit.bucket.spendable import Reserved
from batchlimit.quota.quota import Quota
from tests.depth import depth
from tests.reservoir.world import SECOND, about

HUNDRED = Quota(100.0, 100)  # full again in a second, leases of 0.4 s while it is poor
START = 1_700_000_000 * SECOND


class Desk:
    """One bucket, and a number for each call; times are seconds since the bucket's birth."""

    def __init__(self, quota: Quota = HUNDRED, fill: float = 1.0) -> None:
        self.quota, self.bucket, self.seq = quota, Bucket(quota, START, fill), 0

    def ask(self, at: float, need: int = 0, instance: str = "a", **rest: Any) -> Grant:
        """By default nothing is held: what was granted before has been spent. Answers take so long that a lease of
        tokens for who waits lasts as long as any other, 0.4 s.
        """
        self.seq += 1
        rest.setdefault("round_trip", 0.2)
        quota = rest.pop("quota", self.quota)
        queued = rest.pop("queued", need)
        want = rest.pop("want", queued)
        return self.bucket.take(
            quota, Ask(instance, rest.pop("seq", self.seq), need, queued, want, **rest), instant(at)
        )

    def give(self, at: float, tokens: int = 0, instance: str = "a", **rest: Any) -> int:
        self.seq += 1
        return self.bucket.give_back(GiveBack(instance, rest.pop("seq", self.seq), tokens, **rest), instant(at))

    def look(self, at: float) -> Level:
        return Level(*self.bucket.peek(instant(at))[:3])

    def spend(self, at: float, tokens: int, instance: str = "a") -> None:
        """Take tokens and report them spent."""
        assert self.ask(at, tokens, instance).granted == tokens
        self.ask(at, 0, instance)


def instant(at: float) -> int:
    return START + round(at * SECOND)


# What is refilled


@pytest.mark.parametrize(("fill", "level"), [(1.0, 100), (0.5, 50), (1 / 3, 33), (0.0, 0)])
def test_a_bucket_begins_at_its_fill(fill: float, level: int) -> None:
    assert Desk(fill=fill).look(0.0) == Level(level, 0, 0)
    assert Bucket(Quota(1e6, 100), START, fill).peek(START).level == level, "nothing is refilled before"


STORIES = {
    # who asks (or gives, or looks) when for how many, and what it is told
    "one instance keeps half of the burst in reserve at most": """
        a 0 ask 0 want=100: granted 50; a 0 ask 0 want=100 held=50: granted 0; a 0 ask 0 want=100 held=40: granted 10
    """,
    "each lease that ended leaves room from its own end on: nothing can flow in until 0.4 s, 50 have room then": """
        a 0 ask 0; b 0 ask 50; a 0.2 ask 40: granted 40; - 0.2 look: level 10; a 0.9 ask 0: level 60
    """,
    "a new ask renews the lease of what is still held": """
        a 0 ask 60: lease 0.4; a 0.3 ask 0 held=60: kept 60, lease 0.4; - 0.69 look: outstanding 60;
        a 0.7 ask 0 held=60: kept 0
    """,
    "a refusal does not renew the lease": "a 0 ask 100; a 0.3 ask 50 held=10: granted 0, kept 10, lease 0.1",
    "nothing is kept of a lease that expired on the way": """
        a 0 ask 60; a 0.4 ask 5 held=60: kept 0, granted 5; - 0.4 look: outstanding 5
    """,
    "an instance that gives all back leaves its share to the others": """
        a 0 ask 10; b 0 ask 10; - 0 look: active_instances 2; a 0 give 10; - 0 look: active_instances 1
    """,
    "a promise keeps its whole lease from its beginning": """
        a 0 ask 100; a 0 ask 0; a 0 ask 50 max_wait=1: starts_in 0.5, lease 0.4; - 0.89 look: outstanding 50;
        a 0.3 ask 50 max_wait=1 seq=3: starts_in 0.2, lease 0.4
    """,
    "no promise is made that does not fit the burst with what is leased": """
        b 0 ask 70; a 0 ask 30: granted 30; a 0 ask 0; a 0 ask 31 max_wait=10: granted 0;
        a 0 ask 30 max_wait=10: granted 30; - 0 look: level -30, outstanding 100, active_instances 2
    """,
    "the share of an instance that is alone is everything": """
        a 0 ask 100; a 0 ask 0; a 0.5 ask 1 queued=100: granted 50; a 0.5 ask 1 queued=100: granted 0;
        a 0.55 ask 1 queued=100: granted 5; a 0.65 ask 1 queued=100: granted 10
    """,
    "a clock that steps back is ignored until it has caught up": """
        a 0 ask 100; a 0 ask 0; a 0.5 ask 0: level 50; a 0.1 ask 0: level 50; a -100 ask 0: level 50;
        a 0.5 ask 0: level 50; a 0.6 ask 0: level 60
    """,
    "an ask for a single token that is repeated is granted once": """
        a 0 ask 1 seq=1: granted 1; a 0 ask 1 seq=1: granted 1; - 0 look: level 99, outstanding 1, active_instances 1
    """,
    "a lease of a single token ends": """
        a 0 ask 1: granted 1; b 0.9 ask 0; - 0.9 look: level 100, outstanding 0, active_instances 2
    """,
}


@pytest.mark.parametrize("story", STORIES)
def test_what_a_bucket_tells_in_turn(story: str) -> None:
    desk = Desk()
    for step in map(str.strip, STORIES[story].split(";")):
        who, at, does, *more = step.partition(":")[0].split()
        options = {
            name: float(value) if name == "max_wait" else int(value)
            for name, value in (each.split("=") for each in more[1:])
        }
        found = desk.look(float(at)) if does == "look" else getattr(desk, does)(float(at), int(more[0]), who, **options)
        for name, value in (each.split() for each in filter(None, step.partition(":")[2].split(","))):
            assert getattr(found, name) == about(float(value)), step


# Whole grants, parts of grants, refusals


@pytest.mark.parametrize(
    ("need", "queued", "want", "granted"),
    [
        (1, 1, 1, 1),
        (1, 1, 80, 35),  # half of the 70 that are left may go in reserve
        (1, 50, 80, 50),
        (1, 80, 80, 70),  # part of what is wanted
        (70, 100, 100, 70),
        (71, 100, 100, 0),  # less than the need is of no use
        (0, 0, 80, 35),
        (0, 80, 80, 70),
    ],
)
def test_a_grant_is_as_much_of_what_is_wanted_as_there_is(need: int, queued: int, want: int, granted: int) -> None:
    desk = Desk()
    desk.spend(0.0, 30)
    assert desk.ask(0.0, need, queued=queued, want=want).granted == granted


@pytest.mark.parametrize(
    ("others", "left", "granted"),
    [
        (0, 62, 31),
        (0, 60, 50),  # as much as fills in 0.6 s, but half of the burst at most
        (0, 50, 50),
        (0, 40, 40),
        (0, 3, 3),
        (1, 40, 10),  # the half of a half
        (1, 3, 0),
    ],
)
def test_an_instance_that_is_alone_leases_all_that_is_left(others: int, left: int, granted: int) -> None:
    desk = Desk()
    for number in range(others):
        desk.ask(0.0, 0, instance=f"other {number}")
    desk.spend(0.0, 100 - left)
    assert desk.ask(0.0, 0, queued=0, want=100).granted == granted


@given(st.floats(0.01, 1e5), st.integers(1, 500), st.integers(1, 500), st.integers(1, 500))
def test_refused_until_the_named_instant_and_granted_at_it(rate: float, burst: int, spent: int, cost: int) -> None:
    spent, cost = min(spent, burst), min(cost, burst)
    desk = Desk(Quota(rate, burst))
    desk.spend(0.0, spent)
    refusal = desk.ask(0.0, cost)
    assert (refusal.granted == 0) == (spent + cost > burst)
    if refusal.granted == 0:
        assert desk.ask(refusal.retry_after * 0.999 - 3e-6, cost).granted == 0
        assert desk.ask(refusal.retry_after, cost).granted == cost


# Leases


@pytest.mark.parametrize(
    ("round_trip", "lease"), [(0.0, 0.1), (0.001, 0.02), (0.01, 0.04), (0.04, 0.1), (0.3, 0.6), (9.0, 4.0)]
)
def test_no_lease_is_shorter_than_answers_take(round_trip: float, lease: float) -> None:
    assert Desk(Quota(1000.0, 10)).ask(0.0, 1, round_trip=round_trip).lease == about(lease)


# What arrives twice, or late


def test_what_comes_back_with_an_ask_was_not_used() -> None:
    desk = Desk()
    desk.ask(0.0, 60)
    desk.ask(0.0, held=40, back=15)
    assert desk.bucket._used == 60 - 15


@pytest.mark.parametrize(("seconds", "credited"), [(0.995, 0), (0.985, 1), (0.984, 1), (0.975, 2)])
def test_what_is_credited_is_said_in_whole_tokens_though_there_is_room_for_a_fraction(
    seconds: float, credited: int
) -> None:
    """The fraction is credited as well."""
    desk = Desk()
    desk.spend(0.0, 100)
    said = desk.give(seconds, refund=10)
    assert (type(said), said) == (int, credited)
    assert desk.look(seconds).level == 100


def test_a_copy_of_a_refund_is_known_for_half_a_minute_by_a_host_that_has_no_share() -> None:
    """A client that repeats what was not answered does so seconds later; its instance may long be silent by then."""
    desk = Desk()
    desk.spend(0.0, 100)
    assert desk.give(0.0, refund=10, seq=50) == 10
    for at in (1.5, 5.0, 29.0):
        desk.ask(at, 0, "b")
        desk.give(at, 0, "b")
        desk.spend(at, desk.look(at).level, "b")
        assert (at, desk.give(at, refund=10, seq=50), desk.look(at).level) == (at, 0, 0)
    assert desk.bucket._table.weights == 1


# Several bandwidths


BOTH = Quota(100.0, 100, [Quota(10.0, 60)])


# A new quota


def test_a_bandwidth_that_is_added_begins_as_poor_as_the_poorest() -> None:
    desk = Desk()
    desk.spend(0.0, 75)
    desk.ask(0.0, quota=Quota(100.0, 100, [Quota(1.0, 1000)]))
    assert desk.bucket._levels == [25, 250]


_OLD, _NEW = Quota(100.0, 100), Quota(100.0, 200)
_PLAIN, _FIRST, _SECOND, _OVERRIDE = (0, 0), (0, 1), (0, 2), (9, 0)
_STORIES: dict[str, list[tuple[float, Quota, tuple[int, int], Quota]]] = {
    # at (s), the quota and the rank of who asks, the quota that the bucket obeys from then on
    "a rollback takes over a minute after the last instance of the newer revision has asked": [
        (0.0, _OLD, _FIRST, _OLD),
        (1.0, _NEW, _SECOND, _NEW),
        (2.0, _OLD, _FIRST, _NEW),
        (60.9, _OLD, _FIRST, _NEW),
        (61.0, _OLD, _FIRST, _OLD),
        (62.0, _OLD, _FIRST, _OLD),
    ],
    "the newer revision comes back": [
        (0.0, _NEW, _SECOND, _NEW),
        (61.0, _OLD, _FIRST, _OLD),
        (62.0, _NEW, _SECOND, _NEW),
        (63.0, _OLD, _FIRST, _NEW),
    ],
    "an instance that asks now and then keeps its rank": [
        (0.0, _NEW, _SECOND, _NEW),
        (50.0, _NEW, _SECOND, _NEW),
        (100.0, _OLD, _FIRST, _NEW),
        (109.0, _OLD, _FIRST, _NEW),
    ],
    "an instance keeps its rank that always asks when another has just looked at all of them": [
        (0.0, _NEW, _SECOND, _NEW),
        *(
            (at + later, *who, _NEW)
            for at in range(1, 120)
            for later, who in ((0.0, (_OLD, _FIRST)), (0.1, (_NEW, _SECOND)))
        ),
    ],
    "an old pod that restarts restores nothing": [
        (0.0, _OLD, _FIRST, _OLD),
        (1.0, _NEW, _SECOND, _NEW),
        (2.0, _OLD, _FIRST, _NEW),
        (3.0, _OLD, _PLAIN, _NEW),
    ],
    "an override outranks every revision of the code": [
        (0.0, _OLD, _OVERRIDE, _OLD),
        (1.0, _NEW, _SECOND, _OLD),
        (2.0, _NEW, (0, 2**53 - 1), _OLD),
    ],
    "rules without the override let the code have its own again": [
        (0.0, _OLD, _OVERRIDE, _OLD),
        (1.0, _NEW, (10, 2), _NEW),
        (2.0, _OLD, _OVERRIDE, _NEW),
    ],
    "without ranks the younger counts, until none of them asks any more": [
        (0.0, _OLD, _PLAIN, _OLD),
        (1.0, _NEW, _PLAIN, _NEW),
        (2.0, _OLD, _PLAIN, _NEW),
        (61.9, _OLD, _PLAIN, _NEW),
        (62.0, _OLD, _PLAIN, _OLD),
    ],
}


@pytest.mark.parametrize("story", _STORIES)
def test_the_bucket_obeys_the_highest_rank_that_was_heard_of_lately(story: str) -> None:
    desk = Desk()
    for at, quota, (rules, revision), obeyed in _STORIES[story]:
        age = at + (1.0 if quota == _OLD else 0.5)
        grant = desk.ask(at, 0, f"{quota.burst}", quota=quota, age=age, rules=rules, revision=revision)
        assert (grant.quota or quota) == obeyed, at


# Grants that begin later


# Between instances


@pytest.mark.parametrize("instances", [2, 4])
@pytest.mark.parametrize(("quota", "need"), [(HUNDRED, 7), (Quota(1000.0, 1000), 1), (Quota(1000.0, 300), 7)])
def test_equal_hosts_at_a_dry_bucket_get_equal_shares(quota: Quota, need: int, instances: int) -> None:
    """Each asks about every 50 ms, jittered as a Pace is, for far more than there is."""
    desk, chance, spent = Desk(quota), Random(0), [0] * instances
    desk.spend(0.0, quota.burst, "0")
    asks = [(0.01 * instance, instance) for instance in range(instances)]
    while asks[0][0] < 20.0:
        at, instance = heappop(asks)
        spent[instance] += desk.ask(at, need, str(instance), queued=10_000).granted
        heappush(asks, (at + 0.05 * chance.uniform(0.75, 1.25), instance))
    assert sum(spent) >= 0.98 * 20 * quota.rate
    assert min(spent) >= 0.95 * max(spent)


@pytest.mark.parametrize("crowd", depth([2], [1, 2, 8]))
@pytest.mark.parametrize("cost", [50, 90, 100])
@pytest.mark.parametrize("max_wait", [0.0, 1.0])
def test_a_big_cost_is_served_at_last_against_a_crowd_of_small_ones(crowd: int, cost: int, max_wait: float) -> None:
    """The others take what they can of a token at a time; the big one asks ten times a second."""
    desk = Desk()
    served = 0
    for turn in range(600):
        for small in range(crowd):
            desk.ask(turn * 0.1 + small * 0.01, 1, f"small-{small}", queued=3)
        served += desk.ask(turn * 0.1 + 0.09, cost, "big", max_wait=max_wait).granted
    assert served >= cost


@pytest.mark.parametrize(("level", "queued", "granted"), [(100, 100, 50), (100, 30, 30), (40, 100, 20), (1, 1, 1)])
def test_half_of_what_is_there_is_for_whoever_asks_whatever_others_have_accrued(
    level: int, queued: int, granted: int
) -> None:
    """One that asks for nothing has accrued several times the burst. Only whole tokens are kept for it."""
    desk = Desk(Quota(10_000.0, 100))
    desk.ask(0.0, 0, "idle")
    desk.ask(0.0, 0, "busy")
    desk.spend(0.5, 100 - level, "busy")
    assert desk.ask(0.5, 1, queued=queued).granted == granted


def test_a_big_one_that_asks_no_more_is_not_waited_for_long() -> None:
    desk = Desk()
    for turn in range(30):
        desk.ask(turn * 0.1, 1, "small", queued=3)
        if desk.ask(turn * 0.1 + 0.09, 100, "big").granted:
            break
    else:
        pytest.fail("or this test says nothing")
    desk.ask(3.0, 100, "big")
    served = [desk.ask(3.0 + 0.1 * turn, 1, "small", queued=3).granted for turn in range(1, 21)]
    assert all(served[-5:])


# Clocks


def test_a_clock_that_jumps_ahead_gives_a_burst_at_most() -> None:
    desk = Desk()
    desk.spend(0.0, 100)
    for at in (1e5, 1e9, 1e11):
        assert desk.ask(at, 0).level == 100
        desk.spend(at, 100)


# Promises


_asks = st.tuples(
    st.integers(0, 400_000),  # us since the one before
    st.sampled_from("abc"),
    st.sampled_from((0, 1, 5, 40)),  # need
    st.sampled_from((0, 3, 60)),  # more in the queue
    st.sampled_from((0, 50)),  # more wanted
    st.floats(0.0, 1.0),  # the part of what was held that is still there
    st.sampled_from((0.0, 0.0, 0.3, 1.0)),  # max_wait
)


@pytest.mark.parametrize(("max_wait", "free_at"), [(0.0, 0.4), (1.0, 10.4)])
def test_what_is_reserved_for_one_who_went_away_is_free_again(max_wait: float, free_at: float) -> None:
    """After two paces if he did not wait anyway; else two paces after he could have been served."""
    desk = Desk()
    desk.ask(0.0, 0)
    desk.bucket._reserve(Ask("away", 1, 80, 80, 80, max_wait=max_wait), 10 * SECOND)
    assert [desk.ask(at, 50, queued=50).granted for at in (0.0, free_at - 0.01, free_at)] == [0, 0, 50]


@pytest.mark.parametrize(("ends", "told"), [(49, 50), (50, 50), (51, 80)])
def test_what_is_reserved_takes_nothing_from_a_need_that_fits_once_that_is_over(ends: int, told: int) -> None:
    """Microseconds: a token is refilled in each, and 30 are reserved."""
    desk = Desk(Quota(1e6, 100))
    desk.spend(0.0, 100)
    desk.bucket._reserved = Reserved("away", 30, ends)
    assert desk.ask(0.0, 50).retry_after == pytest.approx((told + 1) / SECOND)


def test_a_spend_after_a_long_silence_finds_nothing_reserved() -> None:
    desk = Desk()
    desk.ask(0.0, 0, "a")
    desk.bucket._reserved = Reserved("a", 2, math.inf)
    spend = Spend("key", HUNDRED, 1)
    assert desk.bucket.charge(spend, instant(11.0)).is_charged
    assert desk.bucket.offer(spend, instant(11.0)) is not None


def test_of_a_bucket_that_begins_with_less_a_spend_is_never_refused_without_an_ask() -> None:
    quota = Quota(1e6, 100)
    assert Bucket(quota, START, 0.0).offer(Spend("key", quota, 1), START) is None


def test_an_ask_that_is_repeated_at_the_end_of_its_lease_is_a_new_one() -> None:
    bucket, one = Bucket(Quota(10.0, 1), 0), Ask("a", 1, 1, 1, 1)
    first = bucket.take(Quota(10.0, 1), one, 0)
    again = bucket.take(Quota(10.0, 1), one, round(first.lease * 1_000_000))
    assert (again.granted, again.lease) == (1, first.lease)

"""The reservoir: who is served, in which order, what is asked of the bucket, and what is told when it is short."""

import math

import pytest

from batchlimit.base.waiting import NO_WAIT
from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.messages import GiveBack
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.denial_cache import DenialCache
from batchlimit.reservoir.sizing import BatchSizer, FixedBatch, Usage
from batchlimit.reservoir.waiter import Admit, Fail, Fetch, Refuse, Wait, Waiter
from tests.reservoir.entry import DEAD, HUNDRED, PATIENT, WAITERS_ONLY, Entry
from tests.reservoir.world import Waking, about, figures

# One fetch speaks for all


class Recording:
    """A sizer that writes down what it is told of the last target."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def want(self, usage: Usage) -> int:
        self.told.append(usage.last)
        return 30


def test_a_sizer_is_told_what_it_wanted_last_and_at_first_that_this_was_nothing() -> None:
    entry = Entry(sizer=(sizer := Recording()))
    for _ in range(2):
        entry.grant(entry.fetch(entry.join(1)), tokens=1)
    assert sizer.told == [0, 30]


@pytest.mark.parametrize(("deadline", "max_wait"), [(PATIENT, 1.0), (0.9, 0.4), (NO_WAIT, 0.0)])
def test_a_grant_may_begin_as_late_as_the_first_in_line_can_wait(deadline: float, max_wait: float) -> None:
    entry = Entry()
    assert entry.fetch(entry.join(1, deadline), 0.5).ask.max_wait == about(max_wait)


@pytest.mark.parametrize(
    ("quota", "max_wait"),
    [
        (Quota(100.0, 1), 0.01 + 1.5e-6),
        (Quota(4.0, 2), 0.5 + 1.5e-6),
        (Quota(1.0, 1), 1.0 + 1.5e-6),
        (Quota(10.0, 100), 1.0),
        (Quota(10.0, 100) & Quota(20.0, 2), 0.1 + 1.5e-6),
    ],
)
def test_a_grant_begins_no_later_than_the_bucket_takes_to_fill(quota: Quota, max_wait: float) -> None:
    """One that begins later keeps the bucket from filling meanwhile. The bucket may round its wait up by 1.5 us."""
    entry = Entry(quota)
    assert entry.fetch(entry.join(1)).ask.max_wait == max_wait


# In order of arrival


@pytest.mark.parametrize("way", ["leaves", "is too late"])
def test_when_the_first_goes_the_next_is_woken_and_fetches(way: str) -> None:
    entry = Entry()
    first, second = entry.join(5, 1.0), entry.join(5)
    entry.refuse(entry.fetch(first))
    entry.woken()
    if way == "leaves":
        entry.reservoir.leave(first, 0.9)
    else:
        assert isinstance(entry.step(first, 1.0), Refuse)
    assert second in entry.woken()
    assert entry.fetch(second, 1.0).ask.need == 5


# Until when tokens are good


def test_a_grant_that_arrives_after_its_lease_is_not_spent() -> None:
    """It says nothing about the bucket, so that who takes the first answer may ask once more, and no oftener."""
    entry = Entry()
    waiter = entry.join(1, NO_WAIT)
    for at, verdict in ((0.0, type(None)), (2.0, Refuse)):
        entry.grant(entry.fetch(waiter, at), at + 1.0, 1, lease=1.0)
        assert isinstance(waiter.verdict, verdict)
        assert entry.held == 0


def test_who_asked_before_there_was_a_reservoir_asked_once() -> None:
    before, entry, waiter = Entry(), Entry(), Waiter(1, NO_WAIT, Waking())
    fetch = before.fetch(before.join(1, NO_WAIT))
    assert entry.reservoir.adopt(waiter, fetch)
    entry.grant(fetch, 1.0, 1, lease=1.0)
    assert waiter.verdict is None, "the grant came too late, and it may ask once more"
    assert entry.fetch(waiter, 1.0).ask.need == 1


def test_a_refund_that_is_too_little_for_who_waits_has_it_ask_at_once() -> None:
    entry = Entry()
    first, second = entry.join(2), entry.join(10)
    entry.grant(entry.fetch(first), tokens=7, level=0)
    entry.reservoir.state.denials = DenialCache.dry(0.5, 1, 0.0)
    entry.woken()
    assert entry.refund(2, 0.1) is None
    assert entry.woken() == [second]
    assert isinstance(entry.step(second, 0.1), Fetch)


@pytest.mark.parametrize(("late", "trip"), [(0.0, 0.05), (0.02, 0.05), (0.3, 0.3), (0.9, 0.9), (60.0, 1.0)])
def test_a_caller_who_wakes_too_late_has_the_next_lease_last_longer(late: float, trip: float) -> None:
    """A lease lasts at least twice as long as the bucket is told that an answer takes."""
    entry = Entry()
    waiter = entry.join(1)
    entry.grant(entry.fetch(waiter), 0.05, 1, lease=0.25)
    assert entry.fetch(waiter, 0.25 + late).ask.round_trip == about(trip)


def test_prompt_answers_make_leases_short_again_after_a_caller_woke_late() -> None:
    entry = Entry()
    late = entry.join(1)
    entry.grant(entry.fetch(late), 0.0, 1, lease=0.25)
    entry.grant(entry.fetch(late, 1.25), 1.25, 1)
    trips = []
    for i in range(20):
        fetch = entry.fetch(entry.join(1), 10.0 + 2 * i)
        trips.append(fetch.ask.round_trip)
        entry.grant(fetch, fetch.sent, 1)
    assert (trips[0], trips[-1]) == (about(0.8), about(0.8**20))
    assert trips == sorted(trips, reverse=True)


def test_a_caller_who_wakes_too_late_is_served_by_what_came_meanwhile() -> None:
    entry = Entry()
    late = entry.join(1)
    entry.grant(entry.fetch(late), tokens=1)
    entry.grant(entry.fetch(entry.join(1), 1.5), 1.5, 3)
    assert entry.step(late, 1.6) == Admit(2.5)


def test_callers_who_wake_too_late_together_keep_their_order() -> None:
    entry = Entry()
    first, second = entry.join(2), entry.join(2)
    entry.grant(entry.fetch(first), 0.1, 4)
    fetch = entry.fetch(first, 1.0)
    assert isinstance(entry.step(second, 1.0), Wait)
    entry.grant(fetch, 1.1, 2)
    assert (first.verdict, second.verdict) == (Admit(2.0), None)


def test_who_is_first_after_one_that_was_served_by_what_began_is_woken() -> None:
    entry = Entry()
    first, second = entry.join(5), entry.join(5)
    entry.grant(entry.fetch(first), 0.0, 5, starts_in=0.5, lease=1.0, level=-5)
    entry.woken()
    assert isinstance(entry.step(first, 0.5), Admit)
    assert entry.woken() == [first, second]


def test_what_is_to_come_is_waited_for_and_not_asked_for_again() -> None:
    """However far off it is: who asked again meanwhile would sleep past its beginning, and past its short lease."""
    entry = Entry()
    waiter = entry.join(5)
    entry.grant(entry.fetch(waiter), 0.0, 5, starts_in=0.9, lease=0.1, level=-5)
    assert entry.step(waiter, 0.6) == Wait(about(0.3))
    entry.refund(1)
    assert entry.step(waiter, 0.7) == Wait(about(0.2))
    assert isinstance(entry.step(waiter, 0.91), Admit)


# Leaving


def test_who_leaves_too_late_leaves_nothing_and_was_not_admitted() -> None:
    entry = Entry()
    gone = entry.join(5)
    entry.grant(entry.fetch(gone), 0.1, 5)
    entry.reservoir.leave(gone, 1.0)
    assert entry.held == 0
    assert entry.counted == (0, 0)


def test_who_leaves_after_the_bucket_was_told_that_his_tokens_were_spent_leaves_nothing() -> None:
    """The next ask reported them as spent, and the bucket let others flow in their place."""
    entry, bucket = Entry(), Bucket(HUNDRED, 0)
    gone = entry.join(100)
    fetch = entry.fetch(gone)
    entry.reservoir.granted(fetch, bucket.take(HUNDRED, fetch.ask, 0), 0.0, 1.0)
    assert gone.verdict == Admit(0.25)
    fetch = entry.fetch(entry.join(1, NO_WAIT), 0.05)
    entry.reservoir.granted(fetch, bucket.take(HUNDRED, fetch.ask, 50_000), 0.05, 1.0)
    entry.reservoir.leave(gone, 0.08)
    assert entry.held <= bucket.peek(80_000).outstanding


def test_who_leaves_after_the_end_of_its_lease_leaves_nothing_though_a_later_lease_has_room() -> None:
    """Its token was good until 1.0 s. The lease until 1.9 s has room for those three that others spent of it."""
    entry = Entry(tokens=10, sizer=FixedBatch(10))
    gone = entry.join(1)
    assert entry.step(gone) == Admit(1.0)
    entry.grant(entry.tend(0.9), 0.9, lease=1.0)
    assert entry.reservoir.tokens.take(3) == about(1.9)
    assert entry.held == 6
    entry.reservoir.leave(gone, 1.0)
    assert entry.held == 6
    assert entry.counted == (4, 0), "it was not admitted"


@pytest.mark.parametrize("tentative", [False, True])
def test_who_leaves_returns_nothing_into_a_lease_that_its_tokens_are_not_of(tentative: bool) -> None:
    """What others spent of the next lease is no room for them: the bucket has let others flow in long ago."""
    entry = Entry(sizer=FixedBatch(10))
    gone = Waiter(5, PATIENT, Waking(), tentative=tentative)
    entry.reservoir.admission.join(gone)
    entry.grant(entry.fetch(gone), tokens=5)
    assert isinstance(gone.verdict, Admit)
    entry.grant(entry.fetch(entry.join(1), 0.1), 0.1, 10, **({"kept": 0} if tentative else {}))  # a new bucket
    assert entry.reservoir.tokens.take(6) == about(1.1)
    entry.reservoir.leave(gone, 0.3)
    assert entry.held == 3


@pytest.mark.parametrize("leaves_first", [False, True])
def test_a_token_that_the_bucket_counts_as_spent_goes_back_if_nobody_spends_it(leaves_first: bool) -> None:
    """Of a small burst it is spent when it is granted. Its caller leaves, as another key was short; somebody asks."""
    entry = Entry(Quota(1.0, 2))
    gone = entry.join(1, tentative=True)
    entry.grant(entry.fetch(gone), tokens=1, epoch=7, level=0)
    other = entry.fetch(entry.join(2, NO_WAIT))
    assert (other.ask.held, other.ask.epoch) == (1, 7)
    if leaves_first:
        entry.reservoir.leave(gone, 0.1)
    entry.grant(other, 0.1, kept=0, epoch=7)
    if not leaves_first:
        entry.reservoir.leave(gone, 0.1)
    assert entry.reservoir.lifecycle.tend(0.1) == GiveBack("a", 3, tokens=0, refund=1)
    assert entry.held == 0


def test_it_goes_back_though_two_others_asked_before_its_caller_left() -> None:
    entry = Entry(Quota(1.0, 2))
    gone = entry.join(1, tentative=True)
    entry.grant(entry.fetch(gone), tokens=1, epoch=7, level=0)
    for at in (0.1, 0.2):
        entry.grant(entry.fetch(entry.join(2, NO_WAIT), at), at, kept=0, epoch=7, level=0)
    entry.reservoir.leave(gone, 0.3)
    assert entry.reservoir.lifecycle.tend(0.3) == GiveBack("a", 4, tokens=0, refund=1)


def counted_as_spent(sizer: BatchSizer = WAITERS_ONLY) -> Entry:
    """Two tokens are left of what a small bucket granted: too few for who came second."""
    entry = Entry(Quota(1.0, 5), sizer=sizer)
    first, second = entry.join(2), entry.join(3, NO_WAIT)
    entry.grant(entry.fetch(first), tokens=4, epoch=7, level=0)
    assert (type(first.verdict), type(second.verdict), entry.held) == (Admit, Refuse, 2)
    return entry


def test_a_renewal_gives_none_of_them_back_which_its_answer_does() -> None:
    entry = counted_as_spent(FixedBatch(1))
    assert entry.reservoir.tokens.take(1) == about(1.0)
    entry.reservoir.tokens.add(1)
    renewal = entry.tend(0.9)
    assert (renewal.ask.held, renewal.ask.back) == (2, 0)
    entry.grant(renewal, 0.9, kept=0, epoch=7)
    assert entry.reservoir.lifecycle.tend(0.9) == GiveBack("a", 3, tokens=0, refund=2)


def test_who_waits_asks_for_all_of_its_tokens_where_those_here_are_counted_as_spent() -> None:
    """By the answer to the first ask they are gone: whoever asks for the rest alone never has them all."""
    entry = Entry(Quota(1.0, 2))
    gone = entry.join(1, tentative=True)
    entry.grant(entry.fetch(gone), tokens=1, epoch=7, level=0)
    entry.reservoir.leave(gone, 0.1)
    waiter = entry.join(2)
    rest = entry.fetch(waiter, 0.1)
    assert (rest.ask.need, rest.ask.queued, rest.ask.held) == (1, 1, 1), "the bucket may count it as held, too"
    entry.grant(rest, 0.1, 1, kept=0, epoch=7, level=0)
    ask = entry.fetch(waiter, 0.1).ask
    assert (ask.need, ask.queued, ask.held) == (2, 2, 1)


@pytest.mark.parametrize(
    ("epoch", "at"), [pytest.param(8, 0.1, id="the bucket was lost"), pytest.param(7, 1.0, id="the lease has ended")]
)
@pytest.mark.parametrize("leaves_first", [False, True])
def test_none_goes_back_to_another_bucket_or_after_its_lease(leaves_first: bool, epoch: int, at: float) -> None:
    entry = Entry(Quota(1.0, 2))
    gone = entry.join(1, tentative=True)
    entry.grant(entry.fetch(gone), tokens=1, epoch=7, level=0)
    other = entry.fetch(entry.join(2, NO_WAIT))
    if leaves_first:
        entry.reservoir.leave(gone, 0.1)
    entry.grant(other, at, kept=0, epoch=epoch)
    if not leaves_first:
        entry.reservoir.leave(gone, at)
    assert not entry.reservoir.requests.refunds


# Refusals


def test_small_ones_behind_a_big_one_that_was_refused_do_not_ask_again() -> None:
    """They could not be served before it anyway."""
    entry = Entry()
    big = entry.join(50)
    entry.refuse(entry.fetch(big), retry_after=0.5)
    assert [type(entry.step(entry.join(1, NO_WAIT), at)) for at in (0.1, 0.2, 0.3)] == [Refuse] * 3
    assert entry.reservoir.state.calls == 1


@pytest.mark.parametrize("comes", ["refund", "grant"])
def test_what_comes_back_drops_the_memory_of_a_refusal(comes: str) -> None:
    entry = Entry()
    entry.refuse(entry.fetch(entry.join(10, NO_WAIT)))
    assert entry.reservoir.forecast.denied_for(10, 0.1) > 0.0
    if comes == "refund":
        entry.reservoir.lifecycle.refund(Waiter(1, NO_WAIT, Waking()), 0.1)
    else:
        entry.grant(entry.fetch(entry.join(1, NO_WAIT), 0.1), 0.1, 1)
    assert entry.reservoir.forecast.denied_for(10, 0.1) == 0.0


def test_a_cost_that_no_longer_fits_a_lowered_limit_is_not_kept_waiting() -> None:
    """Never is not later: who joined under the old limit would wait for ever, and everyone behind."""
    entry = Entry()
    waiter, small = entry.join(80), entry.join(1)
    entry.grant(entry.fetch(waiter), 0.1, quota=Quota(50.0, 50), version=2, retry_after=1.0, level=0)
    assert entry.reservoir.state.largest_cost == 50
    assert waiter.verdict is not None or not isinstance(entry.step(waiter, 0.1), Wait | Fetch)
    assert small.verdict is None


# Answers that never came


def test_a_lost_ask_is_not_repeated_by_its_number_once_tokens_were_given_back_under_a_later_one() -> None:
    """If the give-back then arrived after the repetition, it would report as spent what that has just granted."""
    entry, bucket = Entry(tokens=5), Bucket(HUNDRED, 0)
    waiter = entry.join(9)
    entry.reservoir.failed(entry.fetch(waiter), None, 0.1)
    back = entry.reservoir.lifecycle.drain()
    assert back is not None
    entry.reservoir.gave_back(0.2)
    fetch = entry.fetch(waiter, 0.2)
    entry.reservoir.granted(fetch, bucket.take(HUNDRED, fetch.ask, 200_000), 0.2, 1.0)
    entry.reservoir.leave(waiter, 0.2)
    bucket.give_back(back, 250_000)
    assert entry.held <= bucket.peek(250_000).outstanding


def test_an_answer_that_refuses_many_wakes_the_leader_once() -> None:
    """Each time that it is woken it takes a step: for nothing, where others are refused."""
    entry = Entry()
    patient, *hasty = entry.join(1), *(entry.join(1, NO_WAIT) for _ in range(20))
    entry.refuse(entry.fetch(patient))
    assert all(isinstance(waiter.verdict, Refuse) for waiter in hasty)
    assert entry.reservoir.to_wake().count(patient) == 1


def test_who_had_no_answer_was_refused_by_none() -> None:
    entry = Entry()
    fetching, other = entry.join(1), entry.join(2, NO_WAIT)
    entry.reservoir.failed(entry.fetch(fetching), None, 0.1)
    entry.reservoir.state.denials = DenialCache.dry(0.5, 1, 0.1)
    assert isinstance(entry.step(other, 0.1), Refuse)
    assert entry.reservoir.state.refused_by_store == 0


def test_after_a_failure_the_background_rests_but_a_caller_asks_at_once() -> None:
    entry = Entry(tokens=10, sizer=FixedBatch(10))
    due = entry.reservoir.lifecycle.due()
    entry.reservoir.failed(entry.tend(due), DEAD, due)
    assert entry.reservoir.lifecycle.due() > due
    assert entry.reservoir.lifecycle.tend(due) is None
    assert entry.fetch(entry.join(20), due).repeated


# In the background


def _in_use(level: int) -> Entry:
    """60 tokens at hand, renewed a moment ago, of which callers would use some in a round trip."""
    entry = Entry(sizer=FixedBatch(100))
    entry.grant(entry.fetch(entry.join(1, NO_WAIT)), 0.1, 101)
    assert entry.reservoir.tokens.take(20) == 1.0
    fetch = entry.tend(entry.reservoir.lifecycle.due())
    entry.reservoir.tokens.take(20)
    entry.grant(fetch, entry.reservoir.tokens.expires - 0.05, level=level)
    assert entry.held == 60
    return entry


@pytest.mark.parametrize(
    ("low", "cost", "spends"),
    [(0, 1, False), (5, 1, True), (5, 10, True), (5, 11, False)],
    ids=["not low", "low", "to the last one", "too much"],
)
def test_who_comes_upon_the_low_mark_takes_of_the_last_and_has_more_fetched(low: int, cost: int, spends: bool) -> None:
    entry = Entry(tokens=10)
    entry.reservoir.tokens.set_low_watermark(low)
    assert entry.reservoir.requests.take_low(cost) == (1.0 if spends else -math.inf)
    assert entry.reservoir.requests.wants_refill == spends
    assert entry.reservoir.tokens.low_watermark == (0 if spends else low)
    assert (entry.reservoir.lifecycle.due() <= 0.0) == spends
    assert entry.reservoir.state.lease.held == (10 - cost if spends else 10)


def test_a_reservoir_that_runs_low_fetches_before_it_is_empty() -> None:
    entry = _in_use(level=90)
    while entry.reservoir.tokens.take(1) != -math.inf:
        assert entry.reservoir.lifecycle.due() > entry.reservoir.state.used
    left, now = entry.held, entry.reservoir.state.used + 0.01
    assert 0 < left <= 30
    waiter = entry.join(1, NO_WAIT)
    assert isinstance(entry.step(waiter, now), Admit)
    assert entry.reservoir.lifecycle.due() <= now
    fetch = entry.tend(now)
    assert (fetch.ask.need, fetch.ask.queued, fetch.ask.held, fetch.cost) == (0, 0, left - 1, 0)
    assert entry.reservoir.tokens.take(1) != -math.inf


def test_tokens_that_nobody_used_go_back_and_a_quiet_reservoir_retires() -> None:
    entry = Entry(tokens=5, sizer=FixedBatch(5), idle_after=10.0)
    entry.grant(entry.tend(entry.reservoir.lifecycle.due()), 0.9)
    due = entry.reservoir.lifecycle.due()
    assert 0.9 < due < entry.reservoir.tokens.expires
    assert entry.reservoir.lifecycle.tend(due) == GiveBack("a", 3, tokens=5)
    assert entry.held == 0
    assert entry.reservoir.lifecycle.due() == math.inf
    entry.reservoir.gave_back(due)
    assert entry.reservoir.lifecycle.due() == entry.reservoir.tokens.expires
    assert entry.reservoir.lifecycle.tend(due) is None
    assert not entry.reservoir.state.is_retired
    assert entry.reservoir.lifecycle.tend(entry.reservoir.lifecycle.due()) is None
    assert entry.reservoir.state.is_retired
    assert entry.reservoir.lifecycle.due() == math.inf
    assert entry.counted == (1, 0)


def test_a_reservoir_that_serves_someone_at_this_moment_is_not_idle() -> None:
    entry = Entry(idle_after=0.3)
    waiter = entry.join(5)
    entry.grant(entry.fetch(waiter), 0.0, 5, starts_in=0.5, level=-5)
    assert entry.reservoir.lifecycle.tend(0.6) is None
    assert waiter.verdict == Admit(1.5)
    assert not entry.reservoir.state.is_retired


def test_nor_does_it_retire_before_whoever_was_served_has_looked() -> None:
    """A caller of several keys may look late: it once found a retired reservoir, and raised an exception."""
    entry = Entry(idle_after=0.3)
    waiter = entry.join(5, tentative=True)
    entry.grant(entry.fetch(waiter), 0.0, 5)
    for now in (2.0, 4.0, 40.0):
        assert entry.reservoir.lifecycle.tend(now) is None
        assert not entry.reservoir.state.is_retired
        assert now < entry.reservoir.lifecycle.due() < math.inf
    assert isinstance(entry.step(waiter, 40.0), Fetch)
    entry.reservoir.leave(waiter, 40.0)
    for now in (50.0, 60.0):  # the first look sees that somebody has left
        assert entry.reservoir.lifecycle.tend(now) is None
    assert entry.reservoir.state.is_retired


# Edges


@pytest.mark.parametrize("starts_in", [0.0, 0.3])
def test_close_fails_whoever_waits_and_lets_all_tokens_go(starts_in: float) -> None:
    entry = Entry(tokens=5)
    line = [entry.join(10), entry.join(1, NO_WAIT), entry.join(1, 3.0)]
    fetch = entry.fetch(line[0])
    closed = RuntimeError("closed")
    assert entry.reservoir.lifecycle.close(closed, closer := Waiter(0, NO_WAIT, Waking()))
    assert [waiter.verdict for waiter in line] == [Fail(closed)] * 3
    assert set(entry.woken()) == set(line)
    assert entry.reservoir.state.is_retired
    assert entry.reservoir.lifecycle.due() == math.inf
    assert entry.reservoir.lifecycle.drain() is None, "not before the answer is here"
    entry.grant(fetch, 0.1, 7, starts_in=starts_in)
    assert entry.woken() == [closer], "who is to give the rest back"
    assert entry.reservoir.lifecycle.drain() == GiveBack("a", 3, tokens=12)
    entry.reservoir.gave_back(0.1)
    assert figures(entry.reservoir)[6:] == (0, 0, 0)
    assert entry.reservoir.lifecycle.drain() is None


# Refunds


@pytest.mark.parametrize(("since", "age"), [(-5.0, 7.0), (2.5, 0.0)])
def test_an_ask_says_how_old_the_quota_is_and_how_long_answers_take(since: float, age: float) -> None:
    entry = Entry(since=since)
    entry.grant(entry.fetch(entry.join(1), 1.0), 1.25, tokens=1)
    ask = entry.fetch(entry.join(1), 2.0).ask
    assert (ask.age, ask.round_trip) == (age, 0.25)


@pytest.mark.parametrize(("at", "back"), [(0.5, None), (0.7, GiveBack("a", 2, tokens=0, refund=4))])
def test_a_refund_goes_to_the_store_if_the_lease_ends_before_it_can_be_renewed(
    at: float, back: GiveBack | None
) -> None:
    """An answer takes 0.2 s, and the lease ends at 1.0 s."""
    entry = Entry()
    entry.grant(entry.fetch(entry.join(4)), 0.2, 4)
    assert entry.refund(4, at) == back
    assert entry.held == (0 if back else 4)


@pytest.mark.parametrize(("instances", "back"), [(1, None), (2, GiveBack("a", 2, tokens=0, refund=1))])
def test_a_refund_goes_to_the_store_if_that_counts_the_grant_as_spent(instances: int, back: GiveBack | None) -> None:
    """Of a burst of 12 two instances may hold three tokens each in reserve; with other weights one of them spends."""
    entry = Entry(Quota(0.1, 12))
    entry.grant(entry.fetch(entry.join(1)), 0.0, 1, active_instances=instances)
    assert entry.refund(1) == back
    assert entry.held == (0 if back else 1)


def test_who_waits_asks_again_once_a_refund_has_arrived_that_an_ask_under_way_held_up() -> None:
    """The bucket refused that ask before it had the tokens back."""
    entry = Entry()
    waiter = entry.join(1)
    fetch = entry.fetch(waiter)
    assert entry.reservoir.lifecycle.refund(Waiter(3, NO_WAIT, Waking()), 0.0) is None
    entry.refuse(fetch)
    assert entry.reservoir.lifecycle.tend(0.1) == GiveBack("a", 2, tokens=0, refund=3)
    entry.reservoir.gave_back(0.1)
    assert waiter in entry.woken()
    assert entry.fetch(waiter, 0.1).ask.need == 1


def test_what_began_while_tokens_were_given_back_is_there_after_it() -> None:
    entry = Entry()
    first = entry.join(5)
    entry.grant(entry.fetch(first), 0.0, 5, starts_in=0.3)
    assert entry.reservoir.lifecycle.refund(Waiter(50, NO_WAIT, Waking()), 0.1) is not None
    entry.reservoir.gave_back(0.4)
    assert isinstance(first.verdict, Admit)


def test_while_tokens_are_given_back_nothing_is_asked() -> None:
    """The numbers of the two tell their order; under way together they could arrive in another."""
    entry = Entry(tokens=5)
    assert entry.reservoir.lifecycle.drain() is not None
    waiter = entry.join(1)
    assert entry.step(waiter) == Wait(None)
    entry.reservoir.gave_back(0.1)
    assert waiter in entry.woken()
    assert entry.fetch(waiter, 0.1).ask.seq == 3


# What is counted


@pytest.mark.parametrize("way", ["wakes too late", "leaves"])
def test_what_a_caller_got_by_the_store_and_did_not_spend_is_not_counted_as_such(way: str) -> None:
    entry = Entry(tokens=10)
    waiter = entry.join(4)
    assert entry.step(waiter) == Admit(1.0)
    assert entry.reservoir.state.lease.served == 5
    if way == "leaves":
        entry.reservoir.leave(waiter, 0.5)
    else:
        entry.step(waiter, 1.0)
    assert entry.reservoir.state.lease.served == 1


def test_tokens_taken_too_late_leave_no_negative_demand() -> None:
    """Or a reservoir would hand out, or give back, tokens that it does not have."""
    entry = Entry(tokens=50)
    entry.reservoir.tokens.take(50)
    entry.reservoir.lifecycle.tend(1.0)
    entry.reservoir.tokens.took_late(50)
    entry.grant(entry.fetch(entry.join(1, NO_WAIT), 1.001), 1.002, 10)
    assert entry.reservoir.tokens.low_watermark >= 0
    assert entry.reservoir.tokens.take(10) == -math.inf
    assert entry.held == 9


# Tentative waiters


@pytest.mark.parametrize("tentative", [False, True])
def test_a_claim_leaves_once(tentative: bool) -> None:
    entry = Entry(tokens=10)
    waiter = Waiter(4, PATIENT, Waking(), tentative=tentative)
    entry.reservoir.admission.join(waiter)
    entry.step(waiter)
    spender = entry.join(6)
    assert isinstance(entry.step(spender), Admit)
    for _ in range(2):
        entry.reservoir.leave(waiter, 0.0)
        assert entry.reservoir.tokens.available == 4
    assert figures(entry.reservoir)[0] == 1 + 6


# Who is served before whom


def test_a_deadline_that_those_ahead_take_all_tokens_of_is_refused_at_once() -> None:
    """The rate is 100/s, and those ahead want 200 tokens: 100 must refill first, whatever the bucket answers."""
    entry = Entry()
    first = entry.join(100)
    entry.grant(entry.fetch(first), tokens=0, level=0, retry_after=0.1)
    for _ in range(2):
        entry.join(50)
    behind = entry.join(10, 1.0)
    refusal = entry.step(behind)
    assert isinstance(refusal, Refuse)
    assert refusal.retry_after == about((200 + 10) / 100)
    assert isinstance(entry.step(entry.join(10, 5.0)), Wait)

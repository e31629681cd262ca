"""A store that is away, on both APIs: when it is given up, what callers get meanwhile, and how it comes back."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from batchlimit import Decision, FailurePolicy, Quota, RateLimited, RateLimiter, StoreUnavailable
from batchlimit.batching import FixedBatch
from batchlimit.errors import BucketUnavailable
from batchlimit.stores import MemoryStore
from tests.apis.blocking import Api
from tests.sync.stage import KEY, Clock, Stage, away, nothing, until

HUNDRED = Quota(100.0, 100)
LOCAL = r"say how many there are, as in FailurePolicy\.local\(instances=4\)"
OPEN = r"^stage:// is away \(circuit open, next probe in \d\.\d\d s, see on_failure\): away$"


class Outage:
    """A limiter on a store that the test takes away and gives back."""

    def __init__(self, api: Api, **options: Any) -> None:
        self.clock = Clock()
        self.stage = Stage(MemoryStore(self.clock))
        self.limiter = api(self.stage, HUNDRED, clock=self.clock, **({"sizer": FixedBatch(1)} | options))

    def begin(self) -> None:
        self.stage.before = self.stage.before_back = self.stage.before_peek = self.stage.before_probe = away

    def end(self) -> None:
        self.stage.before = self.stage.before_back = self.stage.before_peek = self.stage.before_probe = nothing
        until(lambda: self.limiter.statistics().available)

    def give_up(self) -> None:
        """The store is away for so long that nobody asks it any more."""
        self.begin()
        for n in range(3):
            assert self.limiter.statistics().available
            self.limiter.try_acquire(f"another {self.limiter.statistics().outages}.{n}")
        assert not self.limiter.statistics().available


Begin = Callable[..., Outage]


@pytest.fixture
def outage(api: Api) -> Iterator[Begin]:
    """Makes limiters, and closes them: their probers end."""
    made: list[Outage] = []

    def begin(**options: Any) -> Outage:
        made.append(Outage(api, **options))
        return made[-1]

    yield begin
    for each in made:
        each.stage.before = each.stage.before_back = each.stage.before_peek = nothing
        each.limiter.close()


def test_three_failures_in_a_row_and_nobody_asks_any_more(outage: Begin) -> None:
    story = outage()
    story.begin()
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=r"^away$"):
            story.limiter.decide(KEY)
    for call in (story.limiter.decide, story.limiter.acquire, story.limiter.peek):
        with pytest.raises(StoreUnavailable, match=OPEN) as caught:
            call(KEY)
        assert type(caught.value) is StoreUnavailable
    assert not story.limiter.try_acquire(KEY)
    assert len(story.stage.asks) == 3
    found = story.limiter.statistics()
    assert (found.calls, found.failures, found.outages, found.available) == (3, 3, 1, False)
    assert (found.admitted, found.refused) == (0, 6)


def test_who_waits_hears_of_the_failure_that_opens_the_circuit(outage: Begin) -> None:
    story = outage()
    story.begin()
    for n in range(2):
        assert not story.limiter.try_acquire(f"another {n}")
    with pytest.raises(StoreUnavailable, match=r"^away$"):
        story.limiter.acquire(KEY, timeout=60)


def test_who_waits_outlasts_one_failure_though_a_store_raises_the_same_error_that_opened_the_circuit(
    outage: Begin,
) -> None:
    same = StoreUnavailable("away")

    def fail() -> None:
        raise same

    story = outage()
    story.stage.before = fail
    for n in range(3):
        assert not story.limiter.try_acquire(f"another {n}")
    assert same._is_final
    until(lambda: story.limiter.statistics().available)
    assert not story.limiter.try_acquire("once more")
    assert not same._is_final


def test_an_answer_in_between_begins_the_count_anew(outage: Begin) -> None:
    story = outage()
    for _ in range(3):
        story.stage.before = away
        assert not story.limiter.try_acquire(KEY)
        assert not story.limiter.try_acquire(KEY)
        story.stage.before = nothing
        assert story.limiter.try_acquire(KEY)
    found = story.limiter.statistics()
    assert (found.failures, found.outages, found.available) == (6, 0, True)


def test_a_probe_that_comes_through_brings_the_store_back_and_it_can_go_again(outage: Begin) -> None:
    story = outage()
    for n in range(1, 4):
        story.give_up()
        probes = story.stage.probes
        until(lambda probes=probes: story.stage.probes >= probes + 2)  # type: ignore[misc]
        assert not story.limiter.statistics().available
        story.end()
        assert story.limiter.try_acquire(KEY)
        assert story.limiter.statistics().outages == n


def test_an_error_of_one_key_is_no_outage(outage: Begin) -> None:
    def wrong_type() -> None:
        raise BucketUnavailable("something else lies there")

    story = outage()
    story.stage.before = wrong_type
    for _ in range(5):
        with pytest.raises(BucketUnavailable, match="something else"):
            story.limiter.decide(KEY)
    found = story.limiter.statistics()
    assert (found.failures, found.outages, found.available) == (0, 0, True)
    for trouble in (away, away, wrong_type, away, away):
        story.stage.before = trouble
        assert not story.limiter.try_acquire(KEY)
    assert story.limiter.statistics().outages == 0, "for it is an answer"


def test_leased_tokens_serve_through_it(outage: Begin) -> None:
    story = outage(sizer=FixedBatch(10))
    story.limiter.acquire(KEY)
    story.begin()
    assert [story.limiter.try_acquire(KEY) for _ in range(9)] == [True] * 9
    assert story.limiter.statistics().fallback == 0


def test_open_admits_everything(outage: Begin) -> None:
    story = outage(on_failure="open")
    story.give_up()
    assert all(story.limiter.try_acquire(KEY) for _ in range(1000))
    told = story.limiter.decide(KEY, 100)
    assert (told.allowed, told.source) == (True, "fallback")
    story.limiter.acquire(KEY, 100)
    story.limiter.acquire_all({KEY: 5, "another": 7})
    story.limiter.reserve(KEY, 10).settle(20)
    assert story.limiter.statistics().fallback >= 1000 + 100 + 100 + 12 + 10


def test_open_says_that_the_whole_limit_remains_and_never_more(outage: Begin) -> None:
    story = outage(on_failure="open")
    story.limiter.acquire(KEY, 30)
    story.give_up()
    for call in (story.limiter.decide, story.limiter.peek, story.limiter.decide):
        assert call(KEY) == Decision(True, 100, 100, retry_after=0.0, reset_after=0.0, source="fallback")


def test_local_says_to_who_is_refused_that_nobody_told_how_many_share_the_limit(outage: Begin) -> None:
    with pytest.warns(UserWarning, match=LOCAL):
        story = outage(on_failure="local")
    story.begin()
    for available in (True, False):
        assert story.limiter.statistics().available == available
        for call in (story.limiter.decide, story.limiter.peek, partial(story.limiter.acquire, timeout=0)):
            with pytest.raises(StoreUnavailable, match=f"away.*; on_failure='local' admits nothing.*{LOCAL}"):
                call(KEY)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RateLimiter(MemoryStore(), "1/s", on_failure=FailurePolicy.local()),
        lambda: RateLimiter.from_url("memory://", "1/s", on_failure={"a": "local", "*": "closed"}),
    ],
)
def test_a_warning_points_at_the_line_that_makes_the_limiter(make: Callable[[], object]) -> None:
    with pytest.warns(UserWarning, match=LOCAL) as warned:
        make()
    assert [each.filename for each in warned] == [__file__]


def test_local_admits_a_share(outage: Begin) -> None:
    story = outage(on_failure=FailurePolicy.local(instances=4))
    story.give_up()
    assert sum(story.limiter.try_acquire(KEY) for _ in range(100)) == 25
    told = story.limiter.decide(KEY)
    assert (told.allowed, told.source, told.remaining) == (False, "fallback", 0)
    assert told.retry_after == pytest.approx(0.04, abs=1e-3)
    story.clock.pass_by(1.0)
    assert sum(story.limiter.try_acquire(KEY) for _ in range(100)) == 25
    with pytest.raises(RateLimited) as caught:
        story.limiter.acquire(KEY, timeout=0.01)
    assert caught.value.retry_after == pytest.approx(0.04, abs=1e-3)


def test_the_last_known_number_of_instances_divides(outage: Begin, api: Api) -> None:
    with pytest.warns(UserWarning, match=LOCAL) as warned:
        story = outage(on_failure="local")
    assert len(warned) == 1
    others = [api(story.stage, HUNDRED, clock=story.clock, sizer=FixedBatch(1)) for _ in range(4)]
    for each in (*others, story.limiter):
        each.acquire(KEY)
    story.give_up()
    assert sum(story.limiter.try_acquire("another") for _ in range(100)) == 20
    for each in others:
        each.close()


def test_each_key_has_its_policy(outage: Begin) -> None:
    story = outage(on_failure={"login:*": "closed", "search:*": FailurePolicy.local(instances=2), "*": "open"})
    story.give_up()
    with pytest.raises(StoreUnavailable):
        story.limiter.decide("login:ann")
    assert sum(story.limiter.try_acquire("search:ann") for _ in range(200)) == 50
    assert sum(story.limiter.try_acquire("ann") for _ in range(200)) == 200


@pytest.mark.parametrize("policy", ["open", FailurePolicy.local(instances=4)])
def test_a_caller_that_is_not_refused_hears_of_no_store(outage: Begin, policy: Any) -> None:
    story = outage(on_failure=policy)
    story.limiter.acquire(KEY, 5)
    story.clock.pass_by(0.9)  # its lease is over: a refund has to travel
    story.give_up()
    told = story.limiter.peek(KEY)
    assert (told.allowed, told.source) == (True, "fallback")
    story.limiter.refund(KEY, 2)
    with story.limiter.reserve(KEY, 10) as reservation:
        reservation.settle(4)
    story.limiter.acquire(KEY)
    assert story.limiter.peek(KEY).source == "fallback"


def test_a_caller_that_is_refused_hears_of_the_store_everywhere(outage: Begin) -> None:
    story = outage()
    story.limiter.acquire(KEY, 5)
    story.clock.pass_by(0.9)
    story.give_up()
    story.limiter.refund(KEY)  # which is not lost: it travels when the store is back
    for call in (story.limiter.peek, story.limiter.acquire, story.limiter.decide):
        with pytest.raises(StoreUnavailable):
            call(KEY)
    with pytest.raises(StoreUnavailable):
        story.limiter.acquire_all({KEY: 1, "another": 1})
    with pytest.raises(StoreUnavailable):
        story.limiter.reserve(KEY, 1)


def test_a_refund_during_an_outage_arrives_after_it(outage: Begin) -> None:
    story = outage()
    story.limiter.acquire(KEY, 50)
    story.clock.pass_by(0.9)  # its lease is over
    story.give_up()
    before = story.limiter.statistics().calls
    story.limiter.refund(KEY, 20)
    assert story.limiter.statistics().calls == before, "nothing was sent"
    story.end()
    story.clock.pass_by(2.0)
    story.limiter.try_acquire("another")
    until(lambda: [back.refund for back in story.stage.backs if back.refund] == [20])


@pytest.mark.parametrize("policy", ["open", FailurePolicy.local(instances=1)])
def test_what_was_admitted_without_the_store_is_not_refunded_to_it(outage: Begin, policy: Any) -> None:
    story = outage(on_failure=policy)
    story.limiter.acquire(KEY)  # so that it is known how many instances there are
    story.give_up()
    reservation = story.limiter.reserve("other", 100)
    story.end()
    story.clock.pass_by(0.6)
    used = sum(story.limiter.try_acquire("other") for _ in range(300))
    assert 50 <= used <= 100
    reservation.settle(0)
    used += sum(story.limiter.try_acquire("other") for _ in range(300))
    assert used <= 100


def test_back_again_the_store_decides_and_nothing_is_repaid(outage: Begin) -> None:
    """Tokens admitted meanwhile are not charged to the bucket: later callers would pay for them by surprise."""
    story = outage(on_failure="open", sizer=FixedBatch(50))
    story.give_up()
    for _ in range(500):
        assert story.limiter.try_acquire(KEY)
    story.end()
    story.clock.pass_by(0.6)  # by then what was borrowed is over
    told = story.limiter.decide(KEY)
    assert (told.allowed, told.source) == (True, "store")
    assert story.stage.peek(KEY, HUNDRED).level == 50, "of a hundred fifty were leased, none was repaid"
    assert sum(story.limiter.try_acquire(KEY) for _ in range(200)) < 100, "and nothing borrowed is left"

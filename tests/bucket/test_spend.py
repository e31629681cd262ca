"""A bucket that is too small to lease: what is granted is spent then, and a refusal tells the bucket's own time."""

import pytest

from batchlimit.bucket.messages import Level
from batchlimit.quota.quota import Quota
from tests.bucket.test_bucket import Desk

ONE = Quota(1.0, 1)


def crowd(quota: Quota, instances: int) -> Desk:
    """A desk that so many instances asked a moment ago."""
    desk = Desk(quota)
    for each in range(instances):
        desk.ask(0.0, 0, f"i{each}")
    return desk


@pytest.mark.parametrize(
    ("burst", "instances", "outstanding"),
    [(1, 1, 0), (5, 1, 0), (6, 1, 1), (11, 2, 0), (12, 2, 1), (47, 8, 0), (48, 8, 1)],
)
def test_an_instance_leases_if_half_of_its_part_of_the_burst_is_three_tokens(
    burst: int, instances: int, outstanding: int
) -> None:
    desk = crowd(Quota(1.0, burst), instances)
    assert desk.ask(0.0, 1, "i0", want=1).granted == 1
    assert desk.look(0.0) == Level(burst - 1, outstanding, instances)


def test_nothing_is_granted_ahead_where_nothing_can_be_leased() -> None:
    desk = crowd(Quota(1.0, 3), 1)
    assert desk.ask(0.0, 1, "i0", queued=2, want=3).granted == 2


def test_the_refill_goes_on_from_the_moment_of_a_spend() -> None:
    desk = crowd(ONE, 8)
    for at, instance, granted, retry_after in [
        (0.0, "i0", 1, 0.0),
        (0.4, "i1", 0, 0.6),  # before anybody has reported anything
        (0.9, "i2", 0, 0.1),
        (1.001, "i3", 1, 0.0),
        (1.5, "i0", 0, 0.501),
        (2.002, "i4", 1, 0.0),
    ]:
        grant = desk.ask(at, 1, instance)
        assert (at, grant.granted, round(grant.retry_after, 3)) == (at, granted, retry_after)


def test_half_a_token_is_set_aside_for_nobody() -> None:
    """The others have accrued all of the token; none of them asks again."""
    desk = crowd(ONE, 8)
    desk.ask(0.0, 1, "i0")
    assert desk.ask(1.0, 1, "i0").granted == 1


def test_no_token_is_reserved_for_one_that_was_refused_one() -> None:
    desk = crowd(ONE, 2)
    desk.ask(0.0, 1, "i0")
    assert desk.ask(0.9, 1, "i1").granted == 0
    assert desk.ask(1.001, 1, "i0").granted == 1


@pytest.mark.parametrize(
    ("need", "instances", "told"),
    [
        (1, 1, 0.1),
        (1, 8, 0.1),
        (5, 1, 0.5),
        (5, 2, 0.5),
        (5, 8, 0.5),
    ],
)
def test_a_refusal_tells_when_the_bucket_has_the_need_whoever_then_asks(need: int, instances: int, told: float) -> None:
    desk = crowd(Quota(10.0, 10), instances)
    desk.spend(0.0, 9, "i0")
    desk.spend(0.0, 1, "i0")
    assert desk.ask(0.0, need, "i0").retry_after == pytest.approx(told, abs=1e-4)


def test_a_bucket_of_which_is_leased_tells_when_a_need_fits_beside_what_is_set_aside() -> None:
    desk = crowd(Quota(100.0, 100), 2)
    for _ in range(4):
        desk.ask(0.0, 25, "i0")
    told = desk.ask(0.0, 50, "i0").retry_after
    assert told == pytest.approx(0.99, abs=1e-4)  # half of 99 tokens is more than 49
    assert desk.ask(told, 50, "i1").granted == 50


def test_what_is_reserved_for_one_that_does_not_wait_makes_no_refusal_longer() -> None:
    """Three workers were asked for the same five tokens: one told half a minute, the others nearly a whole one."""
    desk = crowd(Quota(1 / 6, 10), 3)
    for _ in range(2):
        assert desk.ask(0.0, 5, "i0").granted == 5
    told = [desk.ask(0.7, 5, each).retry_after for each in ("i1", "i2", "i0", "i1")]
    assert told == [pytest.approx(29.3, abs=1e-4)] * 4
    assert desk.ask(0.7 + told[0], 5, "i2").granted == 5


def test_what_is_told_is_kept_by_any_instance() -> None:
    desk = crowd(Quota(10.0, 10), 8)
    desk.spend(0.0, 9, "i0")
    desk.spend(0.0, 1, "i0")
    told = desk.ask(0.05, 5, "i1").retry_after
    assert desk.ask(0.05 + told, 5, "i2").granted == 5


@pytest.mark.parametrize(
    ("quota", "lease"),
    [
        (Quota(1 / 3600, 1), 2.0),
        (Quota(1 / 60, 1), 0.6),
        (Quota(1.0, 1), 0.25),
        (Quota(1.0, 1, (Quota(1 / 3600, 3),)), 0.25),
        (Quota(100.0, 1), 0.02),
    ],
    ids=["until the longest", "a hundredth of a token", "as a lease", "by the fastest bandwidth", "a short lease"],
)
def test_a_caller_may_be_admitted_as_late_as_a_hundredth_of_a_token_takes(quota: Quota, lease: float) -> None:
    assert Desk(quota).ask(0.0, 1, round_trip=0.0005).lease == pytest.approx(lease)


@pytest.mark.parametrize(("at", "credited"), [(0.1, 1), (0.24, 1), (0.41, 0)])
def test_a_spent_token_that_nobody_used_comes_back_while_a_caller_might_use_it(at: float, credited: int) -> None:
    desk = Desk(Quota(0.1, 1))
    assert desk.ask(0.0, 1).lease == pytest.approx(0.4)
    for _ in range(2):
        desk.give(at, 1)
        assert desk.ask(at, 1, "another").granted == credited
        credited = 0


@pytest.mark.parametrize(("at", "granted"), [(0.1, 1), (0.41, 0)])
def test_a_spend_whose_answer_was_lost_is_told_again_as_long_as_it_counts(at: float, granted: int) -> None:
    desk = Desk(Quota(0.1, 1))
    desk.ask(0.0, 1, seq=7)
    again = desk.ask(at, 1, seq=7)
    assert (again.granted, again.kept) == (granted, 0)
    assert desk.look(at) == Level(0, 0, 1)


def test_tokens_that_are_held_are_reported_before_an_instance_spends() -> None:
    """It may use all its tokens until one instant: so it leases these too, and they count until then."""
    desk = Desk(Quota(1.0, 8))
    desk.ask(0.0, 2, "i0")
    desk.ask(0.0, 0, "i1")
    desk.ask(0.0, 0, "i2")
    assert desk.ask(0.0, 1, "i0", held=1, want=1).granted == 1
    assert desk.look(0.0).outstanding == 2

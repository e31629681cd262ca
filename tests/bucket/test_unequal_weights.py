"""Where instances weigh unequally: an urgent caller's comes before the others, and the others keep their part."""

import pytest

from batchlimit.quota.quota import Quota
from tests.bucket.test_bucket import Desk
from tests.reservoir.world import about

TEN = Quota(10.0, 10)
PACE = 0.2  # of TEN


def emptied(heavy: int = 10, lights: int = 7, quota: Quota = TEN) -> Desk:
    """Return an empty bucket that one instance shares with so many of weight 1: all are as if served just now."""
    desk = Desk(quota)
    desk.spend(0.0, quota.burst, "light 0")
    for each in range(lights):
        desk.ask(0.0, 0, f"light {each}")
    desk.ask(0.0, 0, "heavy", weight=heavy)
    return desk


@pytest.mark.parametrize(
    ("at", "heavy", "lights", "begins"),
    [(0.0, 10, 7, 0.17), (0.05, 10, 7, 0.085), (0.05, 10, 1, 0.055), (0.05, 1, 1, PACE)],
)
def test_a_grant_to_a_heavier_instance_begins_as_soon_as_its_tokens_are_there(
    at: float, heavy: int, lights: int, begins: float
) -> None:
    """Of TEN, 10 parts in 17 are a token in 0.17 s, and in 0.085 s after half of it. Others wait for a pace."""
    grant = emptied(heavy, lights).ask(at, 1, "heavy", max_wait=1.0, weight=heavy)
    assert (grant.granted, grant.starts_in) == (1, about(begins))


def test_a_grant_to_a_heavier_instance_begins_when_the_last_of_several_tokens_is_there() -> None:
    desk = emptied(lights=1)
    desk.ask(0.5, 5, "light 0")
    grant = desk.ask(0.5, 1, "heavy", queued=2, max_wait=1.0, weight=10)
    assert (grant.granted, grant.starts_in) == (2, about(0.2))


@pytest.mark.parametrize(("heavy", "granted"), [(1, 1), (2, 0)])
def test_a_lighter_instance_gets_nothing_that_begins_later_than_in_a_pace(heavy: int, granted: int) -> None:
    """With a half of TEN it has a token in 0.2 s, and with a third in 0.3 s. The bucket has one in 0.1 s."""
    grant = emptied(heavy, lights=1).ask(0.0, 1, "light 0", max_wait=1.0)
    assert (grant.granted, grant.retry_after) == (granted, about(0.0 if granted else 0.1))


def test_or_than_its_need_takes_to_refill() -> None:
    """Or it would ask in each pace of a bucket that is small."""
    desk = emptied(heavy=2, lights=1, quota=Quota(10.0, 1))  # of which the pace is 0.02 s
    assert desk.ask(0.08, 1, "light 0", max_wait=1.0).starts_in == about(0.06)


@pytest.mark.parametrize(("max_wait", "others_get"), [(0.01, 0), (0.0, 1)])
def test_a_token_is_reserved_for_who_waits_at_a_heavier_instance(max_wait: float, others_get: int) -> None:
    """It accrued one, and could not wait until the next. Of those who do not wait nobody knows that they come back."""
    desk = emptied()
    assert desk.ask(0.1, 1, "light 0").granted == 1
    assert desk.ask(0.18, 1, "heavy", max_wait=max_wait, weight=10).granted == 0
    assert desk.ask(0.21, 1, "light 1").granted == others_get
    assert desk.ask(0.21, 1, "heavy", weight=10).granted == 1 - others_get


@pytest.mark.parametrize(("queued", "begins"), [(1, 0.1), (2, 0.17)])
def test_a_heavier_instance_whose_callers_are_all_served_leaves_its_share_to_others_like_it(
    queued: int, begins: float
) -> None:
    desk = emptied()
    desk.ask(0.0, 0, "other", weight=10)
    assert desk.ask(0.1, 1, "heavy", queued=queued, weight=10).granted == 1
    assert desk.ask(0.1, 1, "other", max_wait=1.0, weight=10).starts_in == about(begins)

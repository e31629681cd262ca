"""What an instance knows of a bucket: by its last answer, as tables."""

import math
from typing import Any

import pytest

from batchlimit.bucket.fair_share import MARGIN
from batchlimit.bucket.messages import Ask
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.bucket_view import BucketView, InstanceCount, KeySnapshot, binding_of, first_fill, kept_epoch
from batchlimit.reservoir.waiter import Fetch
from tests.reservoir.entry import HUNDRED
from tests.reservoir.world import about, answer

TWO = Quota(100.0, 100, [Quota(1.0, 60)])


def fetch(need: int = 0, quota: Quota = HUNDRED, epoch: int = 0) -> Fetch:
    return Fetch(Ask("a", 1, need, need, need, epoch=epoch), quota, 0.0, need, False)


def view(granted: int = 0, quota: Quota = HUNDRED, now: float = 0.0, need: int = 0, **told: Any) -> BucketView:
    """After one answer, which arrived at `now`."""
    found = BucketView("full", InstanceCount())
    found.learn(fetch(need, quota), answer(granted, **told), now)
    return found


@pytest.mark.parametrize(
    ("levels", "quota", "binding"),
    [
        ((), TWO, None),
        ((50.0,), HUNDRED, None),
        ((50.0, 20.0, 9.0), TWO, 1),  # of a quota that is no more
        ((50.0, 20.0), TWO, 1),
        ((10.0, 20.0), TWO, 0),
        ((0.0, 20.0), TWO, 0),
        ((0.0, 0.5), TWO, 1),  # 10 ms, and half a second
        ((-60.0, 0.5), TWO, 0),  # 610 ms, and half a second
        ((-30.0, 0.5), TWO, 1),  # 310 ms
        ((5.0, 5.0), TWO, 1),  # the slower one
    ],
)
def test_the_bandwidth_with_the_next_token_last_or_the_fewest_binds(
    levels: tuple[float, ...], quota: Quota, binding: int | None
) -> None:
    assert binding_of(levels, quota) == binding


@pytest.mark.parametrize(
    ("level", "is_rich", "is_low"), [(50, True, False), (49, False, False), (20, False, False), (19, False, True)]
)
def test_half_of_the_burst_is_rich_and_less_than_a_fifth_low(level: int, is_rich: bool, is_low: bool) -> None:
    found = view(level=level)
    assert (found.is_rich(100), found.is_low(100)) == (is_rich, is_low)


def test_a_bucket_that_never_answered_is_not_low() -> None:
    assert not BucketView("full", InstanceCount()).is_low(100)


@pytest.mark.parametrize(
    ("tokens", "at"),
    [
        (10, -0.2),  # 30 are there
        (30, 0.0),
        (40, 0.1),
        (80, 0.5),  # 20 are leased: the bucket refills no further before they are reported, or their lease ends
        (81, 1.31),
        (90, 1.4),
    ],
)
def test_tokens_fit_when_they_flowed_in_and_leased_ones_made_room(tokens: int, at: float) -> None:
    found = view(15, level=30, kept=5, starts_in=0.3)
    assert found.fits_in(tokens, HUNDRED, 0.0) == about(max(0.0, at))
    if at >= 0.0:
        assert (found.has(tokens, HUNDRED, at - 1e-6), found.has(tokens, HUNDRED, at + 1e-6)) == (False, True)


def test_levels_of_another_quota_are_told_as_far_as_there_are_bandwidths() -> None:
    found = view(2, TWO, level=10, levels=(30.0, 10.0))
    assert found.levels(HUNDRED, 2, 0.0) == [32.0]
    assert found.fits_in(50, HUNDRED, 0.0) == about(0.2)


@pytest.mark.parametrize(("now", "levels"), [(0.0, [32.0, 12.0]), (0.5, [82.0, 12.5]), (9.0, [100.0, 21.0])])
def test_levels_are_those_of_now_with_what_is_held_here(now: float, levels: list[float]) -> None:
    found = view(2, TWO, 5.0, level=10, levels=(30.0, 10.0))
    assert found.levels(TWO, 2, 5.0 + now) == about(levels)


@pytest.mark.parametrize(
    ("quota", "told", "paused_until"),
    [
        (TWO, {"level": -20, "levels": (-200.0, -1.0)}, 2.0),
        (TWO, {"level": -1, "levels": (-1.0, 5.0)}, -math.inf),
        (TWO, {"level": -1, "levels": (5.0, -1.0)}, -math.inf),  # one second
        (Quota(0.5, 1), {"level": -1}, 2.0),
        (HUNDRED, {"level": -1, "levels": (-200.0, -1.0)}, 2.0),  # an answer by another quota
    ],
)
def test_more_than_is_granted_for_later_is_a_pause(quota: Quota, told: dict[str, Any], paused_until: float) -> None:
    assert view(quota=quota, **told).paused_until == paused_until


@pytest.mark.parametrize(("epoch", "losses"), [(0, 0), (7, 0), (1, 1), (6, 1)])
def test_another_epoch_than_the_one_known_is_a_loss(epoch: int, losses: int) -> None:
    found = BucketView("full", InstanceCount())
    found.learn(fetch(epoch=epoch), answer(epoch=7), 0.0)
    assert found.losses == losses


@pytest.mark.parametrize(("quota", "level", "seconds"), [(HUNDRED, 40, 0.6), (TWO, 40, 0.6), (TWO, 59, 0.41)])
def test_a_bucket_is_taken_to_be_there_until_it_is_full_and_a_while_longer(
    quota: Quota, level: int, seconds: float
) -> None:
    kept = next(each / 100 for each in range(10**6) if not kept_epoch(7, 100, 0.0, HUNDRED, each / 100))
    epochs = [kept_epoch(7, level, 5.0, quota, 5.0 + kept + seconds + each) for each in (-0.02, 0.02)]
    assert epochs == [7, 0]


def test_at_the_instant_at_which_a_bucket_may_be_forgotten_it_is_not_taken_to_be_there() -> None:
    assert kept_epoch(7, 100, 0.0, HUNDRED, MARGIN / 1e6) == 0


@pytest.mark.parametrize(
    ("fill", "instances", "share"),
    [("full", 4, 1.0), ("share", 4, 0.25), ("share", 1, 1.0), ("share", 0, 1.0), ("empty", 4, 0.0)],
)
def test_a_lost_bucket_begins_full_or_with_a_share_or_empty(fill: str, instances: int, share: float) -> None:
    assert first_fill(fill, instances) == share  # type: ignore[arg-type]


def test_a_bucket_that_was_never_seen_is_full_and_may_be_shared_by_anybody() -> None:
    found = BucketView("share", InstanceCount())
    assert found.last_seen(HUNDRED, 5.0) == (0, 100)
    assert found.known() == (0, 0, 0, 0.0, -math.inf)
    assert found.expected(HUNDRED, 5.0) == (0, 1.0, 0.0)
    assert [found.fits_in(tokens, HUNDRED, 5.0) for tokens in (100, 101)] == [0.0, 0.0]
    assert (found.binding, found.losses) == (None, 0)


def test_what_a_snapshot_keeps_is_known_again() -> None:
    before, after = view(level=30, active_instances=3, now=0.1), BucketView("share", InstanceCount())
    after.recall(KeySnapshot(0.0, 0.0, 0.0, 0.0, *before.known()))
    assert after.known() == before.known() == (7, 30, 3, 0.1, 0.1)
    assert after.expected(HUNDRED, 0.1) == (7, about(1 / 3), 0.1)


@pytest.mark.parametrize(("instances", "active"), [(0, 1), (1, 1), (3, 3)])
def test_this_instance_is_one_of_those_that_share(instances: int, active: int) -> None:
    found, later = view(active_instances=instances), BucketView("full", InstanceCount())
    later.recall(KeySnapshot(0.0, 0.0, 0.0, 0.0, *found.known()))
    assert (found.active_instances, later.active_instances) == (active, active)


def test_the_refill_of_what_is_there_began_when_the_bucket_would_have_been_empty() -> None:
    """A part of one more token may be there, as levels are whole numbers."""
    assert view(level=30).flows_since(9, HUNDRED) == about(-0.4)
    assert view(level=30).flows_since(9, Quota(0)) == -math.inf

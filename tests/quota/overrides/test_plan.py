from datetime import UTC, datetime, timedelta

import pytest

from batchlimit.quota.overrides.override import Override
from batchlimit.quota.overrides.overrides import MOST, Overrides
from batchlimit.quota.overrides.plan import Difference, Until, applying, difference, end_of, removal, setting
from batchlimit.quota.quota import Quota

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("until", "seconds"),
    [
        (90, 90.0),
        (0.5, 0.5),
        (1.23456, 1.235),
        ("90s", 90.0),
        ("1h", 3600.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("2d 12h", 216_000.0),
        ("250ms", 0.25),
        ("1w", 604_800.0),
        (timedelta(minutes=2), 120.0),
        (datetime.fromtimestamp(NOW + 7, UTC), 7.0),
    ],
)
def test_an_end_is_so_many_seconds_from_now(until: Until, seconds: float) -> None:
    assert end_of(until, NOW) == NOW + seconds


def test_without_an_end_an_override_stays() -> None:
    assert end_of(None, NOW) is None


@pytest.mark.parametrize("until", ["", "1", "h", "1 fortnight", "-1h", "1h!", 0, -5, "0s", 1e18, float("nan")])
def test_what_is_no_time_after_now_is_refused(until: Until) -> None:
    with pytest.raises(ValueError, match="write"):
        end_of(until, NOW)


@pytest.mark.parametrize("text", ["2026-09-21T14:14:20Z", " 2026-09-21 14:14:20+00:00", "2026-09-21T16:14:20+02:00"])
def test_an_instant_is_read_with_its_zone(text: str) -> None:
    assert end_of(text, 1_790_000_000.0) == 1_790_000_060.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026-09-21T14:14:20", "has no time zone"),
        ("2026-09-21", "has no time zone"),
        ("2026-09-21T25:00Z", "is no instant: write 2026-11-28T09:00Z"),
        ("2026-09-21T14:13:20Z", "is no time after now"),
        ("3000000d", "before the year 10000"),
    ],
)
def test_one_without_a_zone_or_of_the_past_is_an_error(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        end_of(text, 1_790_000_000.0)


def test_a_time_of_day_needs_its_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        end_of(datetime(2030, 1, 1), NOW)  # noqa: DTZ001


@pytest.mark.parametrize("until", [True, [], b"1h"])
def test_another_type_is_refused(until: Until) -> None:
    with pytest.raises(TypeError):
        end_of(until, NOW)


OLD = Overrides(7, [Override("gone", Quota(1.0), until=NOW - 1), Override("ann", Quota(2.0))])


@pytest.mark.parametrize(
    ("there", "is_refused"),
    [
        ([], False),
        ([Override("ann", Quota(2.0))], True),
        ([Override("ann", Quota(2.0), until=NOW)], False),
        ([Override("ann", Quota(2.0), mode="shadow")], False),
    ],
)
def test_a_trial_does_not_take_the_place_of_an_override_in_force(there: list[Override], is_refused: bool) -> None:
    trial = Override("ann", Quota(1.0), mode="shadow")
    if is_refused:
        with pytest.raises(ValueError, match="is in force: remove it"):
            setting(Overrides(7, there), trial, "me", NOW)
    else:
        assert setting(Overrides(7, there), trial, "me", NOW).texts["ann"] == trial.encode()


def test_what_is_not_set_is_not_removed() -> None:
    assert removal(OLD, [], "me", "", NOW).texts == {}


def test_there_is_an_end_to_overrides() -> None:
    full = Overrides(7, [Override(f"user:{n}", Quota(1.0)) for n in range(MOST)])
    with pytest.raises(ValueError, match="10000 are the most"):
        setting(full, Override("one more", Quota(1.0)), "me", NOW)
    assert setting(full, Override("user:7", Quota(2.0)), "me", NOW).texts
    one, two = Override("one more", Quota(1.0)), Override("two more", Quota(1.0))
    left = full.by_name["user:7"]
    assert applying(full, Difference((one,), (left,), {}, 0), "me", "", NOW).texts
    with pytest.raises(ValueError, match="10001 overrides"):
        applying(full, Difference((one, two), (left,), {}, 0), "me", "", NOW)


def test_what_stands_there_already_is_not_set_again_and_a_change_tells_what_was_before() -> None:
    ann, bob, cid = (Override(name, Quota(rate)) for name, rate in (("ann", 1.0), ("bob", 2.0), ("cid", 3.0)))
    there, other = Overrides(7, [ann, bob]), Override("bob", Quota(5.0))
    assert difference(there, [ann, other, cid], NOW, prune=True) == Difference((other, cid), (), {"bob": bob}, 1)
    assert difference(there, [other], NOW, prune=True) == Difference((other,), (ann,), {"bob": bob}, 0)
    assert difference(there, [other], NOW, prune=False) == Difference((other,), (), {"bob": bob}, 0)

import ast
import re

import pytest

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level, Spend
from batchlimit.bucket.state import BucketState, counted, read_bucket, rules_of
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.overrides.overrides import STEPS
from batchlimit.quota.quota import Quota
from tests.lua.interpreter import Interpreter

QUOTA = Quota(10.0, 100, [Quota(1.0, 1000)])
START = 1_700_000_000.0


def bucket() -> dict[str, str]:
    """Two instances have leased from it."""
    lua = Interpreter()
    lua.now = round(START * 1e6)
    for name, need in (("one", 10), ("two", 30)):
        lua.take(QUOTA, Ask(name, 1, need, need, need, round_trip=2.0, rules=7 * 2**14 + 3, revision=42, weight=2))
    return lua.fields


@pytest.mark.parametrize(
    ("seconds", "levels"), [(0.0, (60.0, 960.0)), (-5.0, (60.0, 960.0))], ids=["now", "the clock stepped back"]
)
def test_a_bucket_is_read_as_it_lies_there(seconds: float, levels: tuple[float, ...]) -> None:
    state = read_bucket(bucket(), START + seconds)
    assert (state.quota, state.levels, state.outstanding) == (QUOTA, levels, 40)
    assert (state.rules, state.revision) == (7, 42)
    assert [(each.instance, each.held, each.lease, each.weight) for each in state.instances] == [
        ("two", 30, 4.0, 2),
        ("one", 10, 4.0, 2),
    ]


def test_a_bucket_counts_what_was_used_and_refused() -> None:
    lua = Interpreter()
    lua.now = round(START * 1e6)
    lua.take(QUOTA, Ask("one", 1, 10, 10, 30, refused=2, shadow_refused=1))
    lua.take(QUOTA, Ask("one", 2, 0, 0, 0, held=20, back=5, refused=3, shadow_refused=7))
    lua.give_back(QUOTA, GiveBack("one", 3, tokens=10, refund=1))
    state = read_bucket(lua.fields, START)
    assert (state.used, state.refused, state.outstanding) == (30 - 5 - 10 - 1, 5, 0)
    assert state.shadow_refused == 8


def test_a_bucket_from_before_counts_from_now_on() -> None:
    fields = {name: text for name, text in bucket().items() if name != "used"}
    assert read_bucket(fields, START)[-5:] == (0, 0, 0, 0.0, "")


def test_what_has_flowed_in_since_is_counted_as_far_as_there_is_room() -> None:
    assert read_bucket(bucket(), START + 3.0).levels == (60.0, 960.0), "all else is leased"
    fields = bucket() | {"level": "20 500"}
    assert read_bucket(fields, START + 3.0).levels == (50.0, 503.0)
    assert read_bucket(fields, START + 3.0).instances[0][2:4] == (1.0, 3.0)


@pytest.mark.parametrize("seconds", [0.0, 3.9, 4.0, 6.5, 20.0])
def test_tokens_of_a_lease_that_is_over_are_held_by_nobody(seconds: float) -> None:
    """They had been held, and their room had been taken, until the next ask."""
    lua, quota = Interpreter(), Quota(10.0, 100)
    lua.now = round(START * 1e6)
    lua.take(quota, Ask("one", 1, 30, 30, 30, round_trip=2.0))
    lua.now += 1_500_000
    lua.take(quota, Ask("two", 1, 50, 50, 50, round_trip=2.0))
    state = read_bucket(lua.fields, lua.now / 1e6 + seconds)
    lua.now += round(seconds * 1e6)
    seen = lua.peek(quota)
    assert state.levels == pytest.approx(seen.levels, abs=0.002)
    assert state.outstanding == seen.outstanding
    assert sum(each.held for each in state.instances) == seen.outstanding


def test_time_is_told_since_an_instance_asked_last_and_tokens_since_the_bucket_was_refilled_last() -> None:
    lua = Interpreter()
    lua.now = round(START * 1e6)
    lua.take(QUOTA, Ask("one", 1, 10, 10, 10))
    lua.now += 2_000_000
    lua.take(QUOTA, Ask("one", 2, 0, 0, 0, held=10))
    state = read_bucket(lua.fields | {"level": "20 500"}, START + 5.0)
    assert (state.levels, state.age, state.instances[0].asked) == ((50.0, 503.0), 5.0, 3.0)


@pytest.mark.parametrize(
    ("seconds", "paused", "why"), [(0.0, 5.0, "slow"), (4.5, 0.5, "slow"), (5.0, 0.0, ""), (6.0, 0.0, "")]
)
def test_a_pause_is_told_with_its_reason_until_its_end(seconds: float, paused: float, why: str) -> None:
    state = read_bucket(bucket() | {"paused": "5000000 slow"}, START + seconds)
    assert (state.paused, state.why, state.age) == (paused, why, seconds)


def test_the_largest_holder_is_first_and_of_equal_ones_the_order_is_that_of_their_names() -> None:
    fields = bucket()
    state = read_bucket(fields | {"instance:0": fields["instance:two"], "instance:3": fields["instance:one"]}, START)
    assert [each.instance for each in state.instances] == ["0", "two", "3", "one"]
    assert [each.lease for each in read_bucket(fields, START + 4.5).instances] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "count"),
    [(None, 0), ("", 0), ("7", 7), ("7.9", 7), ("x", 0), ("inf", 0), (f"{3 * STEPS - 1}", 3 * STEPS - 1)],
)
def test_a_count_is_nothing_where_it_is_damaged(text: str | None, count: int) -> None:
    assert counted(text) == count
    assert rules_of(f"{text} 42") == count // STEPS


def test_a_bucket_of_another_format_is_not_read() -> None:
    assert read_bucket(bucket() | {"format": "1"}, START).outstanding == 40
    with pytest.raises(BucketUnavailable, match="of format 2"):
        read_bucket(bucket() | {"format": "2"}, START)


@pytest.mark.parametrize("damage", [{"quota": "x"}, {"times": ""}, {"level": "1"}, {"instance:one": "?"}], ids=str)
def test_a_damaged_bucket_is_told(damage: dict[str, str]) -> None:
    with pytest.raises(BucketUnavailable, match="no bucket"):
        read_bucket(bucket() | damage, START)


# What a message says if nobody gives it, as its documentation tells


@pytest.mark.parametrize("message", [Ask, Grant, Spend, GiveBack, Level, BucketState])
def test_a_field_has_the_default_that_its_documentation_tells(message: type) -> None:
    fields = re.split(r"\n {8}(?=\w+: )", (message.__doc__ or "").partition("    Example:")[0])[1:]
    told = [(field.partition(":")[0], re.search(r"default (\(\)|[^):;]+)", field)) for field in fields]
    defaults = {name: ast.literal_eval(found[1]) for name, found in told if found}
    assert defaults == message._field_defaults  # type: ignore[attr-defined]

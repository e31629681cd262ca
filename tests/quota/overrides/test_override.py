import json
import math
from dataclasses import replace
from typing import Any

import pytest

from batchlimit.base.key import stored
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.grammar import LARGEST_WEIGHT
from batchlimit.quota.overrides.override import KeyRule, NotUnderstood, Override, check_name
from batchlimit.quota.quota import Quota

OPEN = Override("search:*", None, until=1000.5, mode="open")
FULL = Override("search:*", Quota.parse("5/minute; 100/day"), until=1000.5, at=900.0, why="slow index", who="ann")


MORE = Override("ann", None, weight=3, on_failure=FailurePolicy.local(48))
TRIAL = Override("ann", Quota(5.0), mode="shadow")
VIP = Override("ann", Quota(5.0), why="vip")
HOLD = Override("ann", Quota(0.0), until=9.5, at=7.0, why="abuse", covered=VIP)
LION = Override("löwe 🦁", Quota(1 / 3, 7))


@pytest.mark.parametrize("override", [FULL, Override("ann", Quota(0.0)), LION, OPEN, MORE, TRIAL, HOLD], ids=str)
def test_an_override_reads_back_as_it_was(override: Override) -> None:
    assert Override.decode(override.name, override.encode()) == override


def test_the_text_in_the_store_is_for_people() -> None:
    assert json.loads(FULL.encode()) == {
        "quota": "5/m; 100/d",
        "until": 1000.5,
        "at": 900.0,
        "why": "slow index",
        "who": "ann",
    }
    assert Override("ann", Quota(1.0)).encode() == '{"quota": "1/s", "at": 0.0}'
    assert OPEN.encode() == '{"mode": "open", "until": 1000.5, "at": 0.0}'


def test_a_release_that_knows_nothing_of_what_is_covered_reads_the_rest() -> None:
    assert HOLD.encode() == (
        '{"until": {"quota": "5/s", "at": 0.0, "why": "vip"}, "quota": "0/s", "until": 9.5, "at": 7.0, "why": "abuse"}'
    )
    assert json.loads(HOLD.encode()) == {"quota": "0/s", "until": 9.5, "at": 7.0, "why": "abuse"}


LASTING, ENDING = Override("ann", Quota(5.0)), Override("ann", Quota(6.0), until=50.0)


@pytest.mark.parametrize(
    ("there", "new", "covered"),
    [
        (None, HOLD, None),
        (LASTING, LION, None),  # what does not end replaces it
        (LASTING, ENDING, LASTING),
        (LASTING, OPEN, LASTING),
        (ENDING, OPEN, None),
        (HOLD, ENDING, VIP),  # of holds in turn the first tells
        (HOLD, LASTING, None),
        (TRIAL, ENDING, None),
        (LASTING, Override("ann", Quota(6.0), until=50.0, mode="shadow"), None),
    ],
    ids=str,
)
def test_what_ends_covers_what_does_not(there: Override | None, new: Override, covered: Override | None) -> None:
    assert replace(new, covered=None).covering(there).covered == covered


@pytest.mark.parametrize("now", [9.4, 9.5])
def test_what_is_covered_counts_from_the_end_on(now: float) -> None:
    assert HOLD.counting(now) == (HOLD if now < 9.5 else VIP)
    assert OPEN.counting(2000.0) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "[]",
        "null",
        "{}",
        '{"mode": "open", "quota": "5/s"}',
        '{"mode": "shadow", "quota": "5/s", "weight": 2}',
        '{"weight": 0}',
        '{"weight": true}',
        '{"on_failure": "sometimes"}',
        '{"on_failure": "local:many"}',
        '{"on_failure": 7}',
        '{"quota": 5}',
        '{"quota": "5/fortnight"}',
        '{"quota": "5/s", "until": "tomorrow"}',
        '{"quota": "5/s", "until": true}',
        '{"quota": "5/s", "until": NaN}',
        '{"quota": "5/s", "why": "two\\nlines"}',
        '{"quota": "5/s", "mode": "of a later version"}',
        '{"until": {"quota": "5/s"}, "quota": "0/s"}',
        '{"until": {"quota": "5/s", "until": 7}, "quota": "0/s", "until": 9}',
        '{"until": {"quota": "5/s", "later": 7}, "quota": "0/s", "until": 9}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_a_text_that_is_not_understood_whole_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstood, match="'ann' cannot be read"):
        Override.decode("ann", text)


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 1025, "\ud800"], ids=ascii)
def test_a_name_that_is_no_key_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"key|name"):
        Override(name, Quota(1.0))


@pytest.mark.parametrize(("name", "why"), [("x" * 1024, ""), ("x" * 1023 + "*", ""), ("ann", "y" * 1000)])
def test_a_name_has_up_to_1024_characters_and_a_reason_1000(name: str, why: str) -> None:
    assert Override(name, Quota(1.0), why=why).why == why
    with pytest.raises(ValueError, match="at most"):
        Override(f"x{name}" if len(name) > 3 else name, Quota(1.0), why=f"y{why}" if why else "")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"why": "two\nlines"}, "why must be one line"),
        ({"who": "two\nlines"}, "who must be one line"),
        ({"who": "y" * 1001}, "who must be one line"),
        ({"at": -1.0}, "seconds since 1970"),
        ({"at": math.inf}, "seconds since 1970"),
        ({"at": True}, "must be a number, not True"),
        ({"until": -1.0}, "seconds since 1970"),
        ({"weight": 0}, "from 1 to"),
        ({"weight": LARGEST_WEIGHT + 1}, "from 1 to"),
        ({"covered": VIP}, "what ends covers what does not"),
        ({"covered": HOLD, "until": 9.0}, "what ends covers what does not"),
    ],
)
def test_what_an_override_cannot_say_is_refused(said: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        Override("ann", Quota(5.0), **said)


def test_an_override_says_the_least_and_the_most_that_it_may() -> None:
    for weight in (1, LARGEST_WEIGHT):
        assert Override("ann", None, until=0, weight=weight, who="y" * 1000).weight == weight


@pytest.mark.parametrize(
    ("override", "said", "is_hold"),
    [
        (OPEN, "search:* open", False),
        (FULL, "search:* 5/m; 100/d (slow index)", False),
        (HOLD, "ann 0/s (abuse)", True),
        (TRIAL, "ann trial of 5/s", False),
        (Override("ann", Quota(0.0), mode="shadow"), "ann trial of 0/s", False),
        (Override("ann", None, mode="shadow"), "ann shadow", False),
        (MORE, "ann weight 3, on_failure local:48", False),
        (Override("ann", Quota(5.0), weight=3), "ann 5/s, weight 3", False),
    ],
    ids=str,
)
def test_an_override_is_told_in_a_line_and_a_hold_admits_nothing(override: Override, said: str, is_hold: bool) -> None:
    assert (str(override), override.is_hold) == (said, is_hold)


@pytest.mark.parametrize(
    ("until", "other", "outlasts"),
    [
        (None, None, False),
        (9.0, None, False),
        (None, 9.0, True),
        (9.0, 9.0, False),
        (9.5, 9.0, True),
        (8.0, 9.0, False),
    ],
)
def test_an_override_outlasts_one_that_ends_earlier(until: float | None, other: float | None, outlasts: bool) -> None:
    assert Override("ann", Quota(1.0), until).outlasts(Override("bob", Quota(1.0), other)) is outlasts


@pytest.mark.parametrize(
    ("rule", "is_plain"),
    [
        (KeyRule(Quota(5.0)), True),
        (KeyRule(Quota(5.0), "shadow"), False),
        (KeyRule(Quota(5.0), trial=Quota(1.0)), False),
        (KeyRule(Quota(5.0), weight=1), False),
        (KeyRule(Quota(5.0), on_failure=FailurePolicy.open()), False),
    ],
)
def test_a_rule_is_plain_if_it_says_a_quota_alone(rule: KeyRule, is_plain: bool) -> None:
    assert rule.is_plain is is_plain


def test_a_name_is_a_pattern_by_its_wildcards() -> None:
    assert [Override(name, Quota(1.0)).is_pattern for name in ("ann", "a*", "a?", "[ab]")] == [False, True, True, True]


def test_names_are_written_as_they_are() -> None:
    assert '"Zoë"' in Override("ann", Quota(1.0), who="Zoë").encode()


@pytest.mark.parametrize(
    ("override", "is_for_all"),
    [
        (Override("*", Quota(1.0)), True),
        (Override("user:*", Quota(1.0)), False),
        (Override("ann", Quota(1.0)), False),
        (Override("*", Quota(1.0), mode="shadow"), False),
    ],
    ids=str,
)
def test_an_override_is_for_all_keys_if_its_name_has_no_character_of_its_own(
    override: Override, is_for_all: bool
) -> None:
    assert override.is_for_all == is_for_all


@pytest.mark.parametrize(("now", "has_ended"), [(999.0, False), (1000.5, True), (2000.0, True)])
def test_an_override_ends_at_its_instant(now: float, has_ended: bool) -> None:
    assert FULL.has_ended(now) is has_ended
    assert not Override("ann", Quota(1.0)).has_ended(now)


def test_a_long_key_is_named_as_its_bucket_is() -> None:
    key = "x" * 500
    assert check_name(key) == stored(key)
    assert check_name(key + "*") == key + "*"

"""Quota: what it accepts, how it is written and read, which quota a key has, and what follows a failure."""

import copy
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.quota.failure_policy import CLOSED, FailurePolicy, failure_rule
from batchlimit.quota.grammar import LARGEST_BURST
from batchlimit.quota.lookup import quota_rule
from batchlimit.quota.quota import Quota

amounts = st.integers(1, 10**9)
units = st.sampled_from(
    ["s", "sec", "second", "seconds", "m", "MIN", "Minute", "h", "hr", "hours", "d", "day", "W", "weeks"]
)
tails = st.one_of(st.just(""), st.integers(1, LARGEST_BURST).map(" burst {}".format))
numbers = st.one_of(st.integers(1, 10**6).map(str), st.decimals("0.1", 9999, places=3).map(str))
counts = st.one_of(st.just(""), st.integers(1, 52).map(str), st.decimals("0.1", 52, places=3).map(str))
texts = st.builds("{}/{}{}{}".format, numbers, counts, units, tails)
rates = st.one_of(st.just(0.0), st.floats(1e-9, 1e308), st.floats(1e-6, 1e6))


@st.composite
def bandwidths(draw: st.DrawFn) -> Quota:
    rate = draw(rates)
    return Quota(rate, draw(st.integers(1, LARGEST_BURST)) if rate else 0)


quotas = st.builds(
    lambda first, also: Quota(first.rate, first.burst, also), bandwidths(), st.lists(bandwidths(), max_size=3)
)


@pytest.mark.parametrize(
    ("rate", "burst"),
    [(100, 100), (100.9, 100), (1, 1), (0.5, 1), (1e-9, 1), (0, 0), (-0.0, 0), (LARGEST_BURST, LARGEST_BURST)],
)
def test_default_burst_is_one_second_of_rate_at_least_one_and_zero_for_rate_zero(rate: float, burst: int) -> None:
    assert burst == Quota(rate).burst
    assert type(Quota(rate).burst) is int
    assert type(Quota(rate).rate) is float


@pytest.mark.parametrize(
    ("rate", "burst", "error", "shown"),
    [
        (True, None, TypeError, "True"),
        ("5", None, TypeError, "'5'"),
        (None, None, TypeError, "None"),
        (-1, None, ValueError, "-1"),
        (math.nan, None, ValueError, "nan"),
        (math.inf, None, ValueError, "inf"),
        (-math.inf, None, ValueError, "-inf"),
        pytest.param(10**400, 1, ValueError, r"10\^400", id="huge"),
        (1e300, None, ValueError, "burst"),
        (1, True, TypeError, "True"),
        (1, 2.0, TypeError, "2.0"),
        (1, "2", TypeError, "'2'"),
        (1, 0, ValueError, "not 0"),
        (1, -1, ValueError, "not -1"),
        (1, LARGEST_BURST + 1, ValueError, str(LARGEST_BURST + 1)),
        (0, 1, ValueError, "not 1"),
    ],
)
def test_a_wrong_value_is_refused_and_named(rate: Any, burst: Any, error: type[Exception], shown: str) -> None:
    with pytest.raises(error, match=shown):
        Quota(rate, burst)


@pytest.mark.parametrize("also", ["100/s", [1], [None]])
def test_also_holds_only_quotas(also: Any) -> None:
    with pytest.raises(TypeError, match="also must be"):
        Quota(1, also=also)


@pytest.mark.parametrize(
    ("quota", "rate", "burst"),
    [
        (Quota.per_second(10), 10.0, 10),
        (Quota.per_minute(30), 0.5, 30),
        (Quota.per_hour(36), 0.01, 36),
        (Quota.per_day(43200), 0.5, 43200),
        (Quota.per_minute(0.5), 0.5 / 60, 1),
        (Quota.per_minute(2.9), 2.9 / 60, 2),
        (Quota.per_minute(30, burst=7), 0.5, 7),
        (Quota.per_day(0), 0.0, 0),
    ],
)
def test_per_period_admits_one_periods_amount_at_once_unless_told(quota: Quota, rate: float, burst: int) -> None:
    assert (quota.rate, quota.burst) == (rate, burst)


@pytest.mark.parametrize(
    ("n", "error"), [(-1, ValueError), (math.nan, ValueError), (math.inf, ValueError), ("1", TypeError)]
)
def test_per_period_checks_the_amount(n: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Quota.per_minute(n)


@pytest.mark.parametrize(
    ("text", "rate", "burst"),
    [
        ("100/s", 100, 100),
        ("100/second", 100, 100),
        ("100/seconds", 100, 100),
        ("100/sec", 100, 100),
        ("100 per minute", 100 / 60, 100),
        ("5/30s", 5 / 30, 5),
        ("100 per 2 minutes", 100 / 120, 100),
        ("100/5m", 100 / 300, 100),
        ("1/min", 1 / 60, 1),
        ("1/h", 1 / 3600, 1),
        ("1/hr", 1 / 3600, 1),
        ("1/2hours", 1 / 7200, 1),
        ("1/day", 1 / 86400, 1),
        ("7/week", 7 / 604800, 7),
        ("1/0.5s", 2, 1),
        ("100/s burst 200", 100, 200),
        ("100/s burst 2_000", 100, 2000),
        ("0.5/s", 0.5, 1),
        ("2.5/s", 2.5, 2),
        ("1_000.5/s", 1000.5, 1000),
        ("0/s", 0, 0),
        ("0.0 per day", 0, 0),
        ("  100PER  Minute\tBURST3\n", 100 / 60, 3),
        ("9999999999999999/s burst 5", 9999999999999999, 5),
        (f"1/s burst {LARGEST_BURST}", 1, LARGEST_BURST),
    ],
)
def test_parse_reads(text: str, rate: float, burst: int) -> None:
    assert Quota.parse(text) == Quota(rate, burst)


def test_parse_joins_bandwidths_with_semicolons() -> None:
    assert Quota.parse("5/minute; 100/day;1/s burst 2") == Quota(5 / 60, 5, (Quota.per_day(100), Quota(1, 2)))


@pytest.mark.parametrize(
    ("text", "expected", "column", "rest"),
    [
        ("", "an amount of tokens", 1, "the end"),
        ("   ", "an amount of tokens", 4, "the end"),
        ("fast", "an amount of tokens", 1, "'fast'"),
        ("-5/s", "an amount of tokens", 1, "'-5/s'"),
        (".5/s", "an amount of tokens", 1, "'.5/s'"),
        ("100", '"/", "per" or "within", as in 5/minute,', 4, "the end"),
        ("1e-3/s", '"/", "per" or "within", as in 5/minute,', 2, "'e-3/s'"),
        ("1__0/s", '"/", "per" or "within", as in 5/minute,', 2, "'__0/s'"),
        ("100.", '"/", "per" or "within", as in 5/minute,', 4, "'.'"),
        ("100; 5/s", '"/", "per" or "within", as in 5/minute,', 4, "'; 5/s'"),
        ("100/", "a unit (s, m, h, d or w)", 5, "the end"),
        ("100/sx", "a unit (s, m, h, d or w)", 5, "'sx'"),
        ("100/month", "a unit (s, m, h, d or w)", 5, "'month'; write 100/30d"),
        ("100/\u017f", "a unit (s, m, h, d or w)", 5, "'\u017f'"),
        ("5/30", "a unit (s, m, h, d or w)", 5, "the end"),
        ("5/30 fortnights", "a unit (s, m, h, d or w)", 6, "'fortnights'"),
        ("5/0s", "a count above 0", 3, "'0s'"),
        ("1/s burts 5", '"burst", ";" or the end', 5, "'burts 5'"),
        ("1/s, 5/m", '"burst", ";" or the end', 4, "', 5/m'; write 1/s; 5/m"),
        ("1/s burst", f"a burst from 1 to {LARGEST_BURST}", 10, "the end"),
        ("1/s burst; 5/m", f"a burst from 1 to {LARGEST_BURST}", 10, "'; 5/m'"),
        ("1/s burst 0", f"a burst from 1 to {LARGEST_BURST}", 11, "'0'"),
        (f"1/s burst {LARGEST_BURST + 1}", f"a burst from 1 to {LARGEST_BURST}", 11, f"'{LARGEST_BURST + 1}'"),
        ("1/s burst 2.5", '";" or the end', 12, "'.5'"),
        ("1/s burst 2 burst 3", '";" or the end', 13, "'burst 3'"),
        ("100/s;", "an amount of tokens", 7, "the end"),
        ("100/s;; 1/m", "an amount of tokens", 7, "'; 1/m'"),
        ("1/s; 5/mo", "a unit (s, m, h, d or w)", 8, "'mo'"),
    ],
)
def test_a_typo_says_what_was_expected_and_where(text: str, expected: str, column: int, rest: str) -> None:
    with pytest.raises(ValueError, match=r"^quota ") as caught:
        Quota.parse(text)
    assert str(caught.value) == f"quota {text!r}: expected {expected} at column {column}: {rest}"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2M/minute", "2_000_000/minute"),
        ("2m/minute", "2_000_000/minute"),
        ("1.5k per s burst 2k", "1_500 per s burst 2_000"),
        ("2,000,000/minute", "2_000_000/minute"),
        ("1e6/s", "1_000_000/s"),
        ("1.5e+3/s", "1_500/s"),
        ("1/s; 3 G/d", "1/s; 3_000_000_000/d"),
        ("100/s burst 1,000", "100/s burst 1_000"),
        ("1e3/week burst 7", "1_000/week burst 7"),
        ("5/month", "5/30d"),
        ("5 per 2 months burst 3", "5/60d burst 3"),
        ("1/second, 3/minute", "1/second; 3/minute"),
        ("1 per hour|2,000 per day", "1 per hour; 2_000 per day"),
        ("5/month,1k/s", "5/30d; 1_000/s"),
        ("1/s; 1e3/year", "1/s; 1_000/365d"),
    ],
)
def test_a_number_that_others_write_so_is_told_as_quotas_have_it(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match=r"^quota .*: expected .* at column ") as caught:
        Quota.parse(text)
    assert str(caught.value).endswith(f"; write {meant}")
    Quota.parse(meant)


@pytest.mark.parametrize(
    "text", ["1,00/s", "1.5e-3/s", "2T/s", "1e99/s", "2M", "2M/fortnight", "1,000/s burst 1T", "5/5k"]
)
def test_what_nobody_can_have_meant_is_not_guessed(text: str) -> None:
    with pytest.raises(ValueError, match=r"^quota ") as caught:
        Quota.parse(text)
    assert "write" not in str(caught.value)


@pytest.mark.parametrize(
    ("bandwidth", "column"),
    [
        ("9" * 400 + "/s", 6),
        ("1/" + "9" * 400 + "s", 6),
        ("9999999999999999/s", 6),
        ("0/s burst 5", 6),
        ("1/s burst " + "9" * 5000, 16),
    ],
    ids=["rate above any double", "rate below any double", "default burst too large", "burst of nothing", "huge burst"],
)
def test_a_number_that_no_quota_can_have_is_refused_with_its_column(bandwidth: str, column: int) -> None:
    with pytest.raises(ValueError, match=rf"^quota '1/d; .*('|\.\.\.): expected .* at column {column}: "):
        Quota.parse(f"1/d; {bandwidth}")


@pytest.mark.parametrize("text", [None, 5, b"1/s", Quota(1)])
def test_parse_reads_only_str(text: Any) -> None:
    with pytest.raises(TypeError, match="must be a str"):
        Quota.parse(text)


@given(st.text(alphabet="0159_./;perbustmhdPS \n\u017f\u00b2"))
def test_any_text_is_a_quota_or_a_value_error_that_names_it(text: str) -> None:
    try:
        Quota.parse(text)
        message = None
    except ValueError as error:
        message = str(error)
    assert message is None or message.startswith(f"quota {text!r}: expected ")


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("100/second", "100/s"),
        ("100 per minute", "100/m"),
        ("0.5/s", "0.5/s"),
        ("60/m", "60/m"),
        ("60/m burst 1", "1/s"),
        ("36/h burst 5", "36/h burst 5"),
        ("5/30s", "10/m burst 5"),
        ("1000/30d", "1000/30d"),
        ("1/7s", "1/7s"),
        ("7/3d", "7/3d"),
        ("10/1.5s", "400/m burst 10"),
        ("7/d burst 2", "7/d burst 2"),
        ("1_000_000_000_000/s burst 200", "1000000000000/s burst 200"),
        ("100/s burst 200; 1000/h; 7/week", "100/s burst 200; 1000/h; 7/w"),
        ("0/day", "0/s"),
    ],
)
def test_a_quota_prints_as_the_shortest_usual_text(text: str, spelled: str) -> None:
    assert str(Quota.parse(text)) == spelled


@given(amounts, st.sampled_from("smhdw"), st.one_of(st.none(), st.integers(1, 10**9)))
def test_a_whole_amount_per_unit_prints_short_and_reads_back(amount: int, unit: str, burst: int | None) -> None:
    text = f"{amount}/{unit}" + ("" if burst is None else f" burst {burst}")
    quota = Quota.parse(text)
    assert Quota.parse(str(quota)) == quota
    assert len(str(quota)) <= len(text)


@given(st.lists(texts, min_size=1, max_size=3))
def test_whatever_parse_read_prints_and_reads_back_equal(parts: list[str]) -> None:
    quota = Quota.parse("; ".join(parts))
    assert len(quota.bandwidths) == len(parts)
    assert Quota.parse(str(quota)) == quota


@given(quotas)
def test_every_quota_survives_its_text_its_code_a_copy_and_a_pickle(quota: Quota) -> None:
    assert Quota.parse(str(quota)) == quota
    assert Quota.decode(quota.encode()) == quota
    assert copy.deepcopy(quota) == quota
    assert pickle.loads(pickle.dumps(quota)) == quota


@given(quotas, quotas)
def test_two_quotas_encode_alike_exactly_if_they_are_equal(one: Quota, other: Quota) -> None:
    assert (one.encode() == other.encode()) == (one == other)


def test_encode_writes_a_whole_amount_for_a_period_where_there_is_one_and_else_seventeen_digits() -> None:
    assert Quota.parse("0.1/s burst 3; 100/d").encode() == "6/60:3 100/86400:100"
    assert Quota(1 / 7, 5).encode() == "0.14285714285714285/1:5"
    assert Quota(1e300, 5).encode() == "1.0000000000000001e+300/1:5"
    assert Quota(-0.0).encode() == "0/1:0"


@pytest.mark.parametrize(
    "text",
    ["", "1", "1/1:1 ", "1/1:1:1", "1/1/1:1", "1/1:1.5", "x/1:1", "nan/1:1", "1/0:1", "1/1:0", "0/1:1", "1:1", "100/s"],
)
def test_decode_refuses_what_encode_does_not_write(text: str) -> None:
    with pytest.raises(ValueError, match="not an encoded quota"):
        Quota.decode(text)


def test_and_joins_the_bandwidths_of_both_and_flattens_them() -> None:
    a, b, c, d = Quota(1), Quota(2), Quota(3), Quota(4)
    assert ((a & b) & (c & d)).bandwidths == (a, b, c, d)
    assert a & b == Quota(1, also=(b,))
    assert Quota(1, also=(b & c, d)).also == (b, c, d)


def test_and_takes_only_a_quota() -> None:
    with pytest.raises(TypeError):
        Quota(1) & "1/s"  # type: ignore[operator]


@given(quotas)
def test_bandwidths_are_this_one_then_also_and_none_has_parts(quota: Quota) -> None:
    assert quota.bandwidths == (Quota(quota.rate, quota.burst), *quota.also)
    assert all(part.also == () for part in quota.bandwidths)


@pytest.mark.parametrize(
    ("text", "largest", "denies"),
    [
        ("10/s", 10, False),
        ("10/s burst 20; 15/h", 15, False),
        ("5/m; 100/d", 5, False),
        ("0/s", 0, True),
        ("9/s; 0/s", 0, True),
    ],
)
def test_largest_cost_is_the_smallest_burst_and_a_zero_rate_denies_all(text: str, largest: int, denies: bool) -> None:
    assert Quota.parse(text).largest_cost == largest
    assert Quota.parse(text).denies_all is denies


def test_a_quota_is_a_frozen_value() -> None:
    assert len({Quota(1), Quota(1.0, 1), Quota.parse("1/s")}) == 1
    with pytest.raises(AttributeError):
        Quota(1).rate = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    "source", ["5/m", Quota.per_minute(5), {"*": "5/m"}, lambda key: "5/m", lambda key: Quota.per_minute(5)]
)
def test_every_kind_of_source_gives_a_quota_for_a_key(source: Any) -> None:
    assert quota_rule(source)("any") == Quota.per_minute(5)


RULES: dict[str, Quota | str] = {
    "*": "1/s",
    "a*": "2/s",
    "ab*": "3/s",
    "abc": "4/s",
    "?": "5/s",
    "x[0-9]": "6/s",
    "q[*]": "7/s",
    "z*": Quota(8),
    "Up*": "9/s",
}


@pytest.mark.parametrize(
    ("key", "rate"),
    [
        ("abc", 4),
        ("abd", 2),
        ("a", 2),
        ("b", 5),
        ("x7", 6),
        ("xx", 1),
        ("A1", 1),
        ("q*", 7),
        ("qq", 1),
        ("z\n1", 8),
        ("zabc", 8),
        ("\n", 5),
        ("babc", 1),
        ("Upper", 9),
        ("upper", 1),
    ],
)
def test_a_mapping_asks_the_exact_key_then_patterns_in_order_then_the_star(key: str, rate: int) -> None:
    assert quota_rule(RULES)(key) == Quota(rate)


def test_a_mapping_is_copied() -> None:
    source: dict[str, Quota | str] = {"a": "1/s"}
    rule = quota_rule(source)
    source["a"] = "2/s"
    assert rule("a") == Quota(1)


def test_a_key_without_a_quota_is_named_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"""no quota for key 'b'; add a "\*" entry"""):
        quota_rule({"a": "1/s", "c*": "1/s"})("b")


@pytest.mark.parametrize(
    ("source", "error", "shown"),
    [
        ("1/x", ValueError, r"^quota '1/x': expected a unit .* at column 3: 'x'$"),
        ({"ok": "1/s", "export:*": "5/x"}, ValueError, r"^quota '5/x': expected a unit .* \'export:\*'\)$"),
        ({"a": 5}, TypeError, "quota of 'a' must be a Quota or its text, not 5"),
        ({b"a": "1/s"}, TypeError, "names of type str, not b'a'"),
        ({"": "1/s"}, ValueError, "'' names no key"),
        ({}, ValueError, "needs an entry"),
        (None, TypeError, "not from None"),
        (b"1/s", TypeError, "not from b'1/s'"),
        (5, TypeError, "not from 5"),
    ],
)
def test_a_wrong_source_fails_at_construction(source: Any, error: type[Exception], shown: str) -> None:
    with pytest.raises(error, match=shown):
        quota_rule(source)


@pytest.mark.parametrize(
    ("result", "error"), [(None, TypeError), (5, TypeError), ({"*": "1/s"}, TypeError), ("1/x", ValueError)]
)
def test_a_function_that_returns_no_quota_is_told_key_and_value(result: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="quota of key 'tenant:1'") as caught:
        quota_rule(lambda key: result)("tenant:1")
    assert repr(result) in str(caught.value)


def test_a_function_is_asked_with_the_key() -> None:
    assert quota_rule(lambda key: f"{len(key)}/s")("four") == Quota(4)


whole = st.integers(1, 10**6)


@given(whole, st.floats(0.1, 1e6), st.one_of(st.none(), whole))
def test_no_window_has_room_for_more_than_it_says(n: int, per: float, burst: int | None) -> None:
    """A call may be admitted 0.25 s after the store has granted its token."""
    quota = Quota.within(n, per=per, burst=None if burst is None else min(burst, n))
    assert math.floor(quota.burst + quota.rate * (per + 0.25)) <= n
    assert quota.burst + quota.rate * (per + 0.25) >= (n + 1) * (1 - 1e-5), "nor for much less"


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("100 within 1m", Quota.within(100, per=60)),
        ("100 WITHIN 60 seconds", Quota.within(100, per=60)),
        ("1_000within1h burst 500", Quota.within(1000, per=3600, burst=500)),
        ("10 within 1s; 100 within 1m", Quota.within(10, per=1) & Quota.within(100, per=60)),
    ],
)
def test_a_window_is_read_from_text_and_written_so_again(text: str, quota: Quota) -> None:
    assert Quota.parse(text) == quota
    assert "within" in str(quota)
    assert Quota.parse(str(quota)) == quota
    assert Quota.decode(quota.encode()) == quota


@given(whole, st.sampled_from([1.0, 60.0, 3600.0, 86400.0]), st.one_of(st.none(), whole))
def test_every_window_of_a_unit_is_written_as_one(n: int, per: float, burst: int | None) -> None:
    quota = Quota.within(n, per=per, burst=None if burst is None else min(burst, n))
    assert str(quota).startswith(f"{n} within 1")


@pytest.mark.parametrize(
    ("n", "per", "burst", "shown"),
    [
        (0, 60, None, "not 0"),
        (1.5, 60, None, "1.5"),
        (True, 60, None, "True"),
        ("5", 60, None, "'5'"),
        (5, 0, None, "not 0"),
        (5, math.inf, None, "not inf"),
        (5, math.nan, None, "not nan"),
        (5, 60, 6, "burst of 6"),
        (5, 60, 0, "not 0"),
    ],
)
def test_a_window_that_cannot_be_is_refused_and_named(n: Any, per: Any, burst: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=shown):
        Quota.within(n, per=per, burst=burst)


# What on_failure may be, and which policy a key has


def test_a_policy_is_made_by_name() -> None:
    assert FailurePolicy.closed() == FailurePolicy("closed") == CLOSED
    assert FailurePolicy.open() == FailurePolicy("open")
    assert FailurePolicy.local() == FailurePolicy("local")
    assert FailurePolicy.local(instances=4) == FailurePolicy("local", 4)


def test_one_policy_is_every_keys() -> None:
    assert failure_rule("open")("any") == FailurePolicy.open()
    assert failure_rule(FailurePolicy.local(3))("any") == FailurePolicy.local(3)


@pytest.mark.parametrize(
    ("key", "kind"),
    [("login:ann", "closed"), ("search:ann", "local"), ("search:admin", "open"), ("export:ann", "closed")],
)
def test_a_mapping_names_keys_as_quotas_do(key: str, kind: str) -> None:
    policies = {"search:*": "local", "search:admin": "open", "login:*": FailurePolicy.closed(), "*": "closed"}
    rule = failure_rule(policies)  # type: ignore[arg-type]
    assert rule(key).kind == kind


def test_a_star_is_for_the_rest() -> None:
    assert failure_rule({"*": "open", "login:*": "closed"})("login:ann") == CLOSED
    assert failure_rule({"*": "open", "login:*": "closed"})("search") == FailurePolicy.open()


@pytest.mark.parametrize(
    ("source", "kind", "said"),
    [
        ("shut", ValueError, "'closed', 'open' or 'local', not 'shut'"),
        (None, TypeError, "not None"),
        (True, TypeError, "not True"),
        ({"*": 5}, TypeError, "not 5"),
        ({b"a": "open"}, TypeError, "not b'a'"),
        ({}, ValueError, "for the keys that [] does not name: add '*': 'closed'"),
        ({"serach:*": "open"}, ValueError, "for the keys that ['serach:*'] does not name: add '*': 'closed'"),
    ],
)
def test_a_wrong_source_says_what_is_wrong(source: object, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as caught:
        failure_rule(source)  # type: ignore[arg-type]
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "instances", "error"),
    [("local", 0, ValueError), ("local", -1, ValueError), ("local", True, TypeError), ("local", 2.0, TypeError),
     ("open", 3, ValueError), ("closed", 1, ValueError)],
)  # fmt: skip
def test_instances_are_a_whole_number_and_for_local_alone(kind: str, instances: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        FailurePolicy(kind, instances)  # type: ignore[arg-type]

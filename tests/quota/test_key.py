"""Keys, costs and prefixes: what is accepted, and that every key has a bucket name of its own."""

import pickle
import re
from enum import Enum
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchlimit.base.key import LONGEST_KEY, NeverFits, check_cost, check_key, check_prefix, stored
from batchlimit.stores.client.scripts import bucket_name

keys = st.one_of(st.text(min_size=1), st.text(min_size=60, max_size=400), st.text("aé😀}", min_size=60, max_size=300))


class Tenant(str, Enum):  # noqa: UP042  StrEnum formats as its value; this one does not
    ACME = "acme"


@given(keys)
def test_any_non_empty_text_is_a_key(key: str) -> None:
    assert check_key(key) is key


def test_an_error_of_a_cost_travels_between_processes() -> None:
    with pytest.raises(NeverFits) as caught:
        check_cost(9, 5, "ann")
    travelled = pickle.loads(pickle.dumps(caught.value))
    assert (str(travelled), travelled.key, travelled.cost, travelled.largest) == (str(caught.value), "ann", 9, 5)


@pytest.mark.parametrize(
    ("key", "error", "shown"),
    [
        (None, TypeError, "not None$"),
        (42, TypeError, "not 42$"),
        (b"a", TypeError, "not b'a'; decode it first$"),
        (bytearray(b"a"), TypeError, "decode it first$"),
        ("", ValueError, "must not be empty"),
        ("a\ud800", ValueError, "UTF-8"),
    ],
)
def test_a_wrong_key_is_refused_and_named(key: object, error: type[Exception], shown: str) -> None:
    with pytest.raises(error, match=shown):
        check_key(key)


@given(st.integers(0, 2**50), st.integers(0, 2**50))
def test_a_cost_passes_exactly_if_it_can_ever_fit(cost: int, largest: int) -> None:
    if cost <= largest:
        assert check_cost(cost, largest, "k") == cost
    else:
        with pytest.raises(ValueError, match="never fit"):
            check_cost(cost, largest, "k")


@pytest.mark.parametrize(
    ("cost", "error", "message"),
    [
        (1.5, TypeError, "cost must be a whole number of tokens, not 1.5"),
        (1.0, TypeError, "cost must be a whole number of tokens, not 1.0"),
        (True, TypeError, "cost must be a whole number of tokens, not True"),
        ("1", TypeError, "cost must be a whole number of tokens, not '1'"),
        (None, TypeError, "cost must be a whole number of tokens, not None"),
        (-1, ValueError, "cost must be at least 0 tokens, not -1"),
        (11, ValueError, "11 tokens never fit a burst of 10: key 'tenant:1'"),
    ],
)
def test_a_wrong_cost_is_refused_with_its_value(cost: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        check_cost(cost, 10, "tenant:1")


@pytest.mark.parametrize("prefix", ["batchlimit", "app:limits", "é", "a#b"])
def test_a_prefix_without_braces_or_white_space_is_accepted(prefix: str) -> None:
    assert check_prefix(prefix) is prefix


@pytest.mark.parametrize("prefix", ["", " ", "a b", "a\n", "a\u00a0", "{", "a}", "{a}", "\ud800"])
def test_a_prefix_that_would_move_the_hash_tag_or_cannot_be_read_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="a prefix must be"):
        check_prefix(prefix)


@pytest.mark.parametrize("prefix", [None, b"a", 1])
def test_a_prefix_is_a_str(prefix: Any) -> None:
    with pytest.raises(TypeError, match=re.escape(repr(prefix))):
        check_prefix(prefix)


def named(key: str) -> str:
    return bucket_name("app", stored(key))


def hash_tag(name: str) -> str:
    """What Redis Cluster hashes: between the first brace and the first closing one after it, unless that is empty."""
    _, opened, rest = name.partition("{")
    tag, closed, _ = rest.partition("}")
    return tag if opened and closed and tag else name


@given(keys, st.text(max_size=10))
def test_every_name_made_by_appending_lives_in_the_buckets_slot(key: str, field: str) -> None:
    name = named(key)
    assert hash_tag(name) == hash_tag(name + field)


@pytest.mark.parametrize("key", ["a", "tenant:42", "a{b}c", "}", "é" * 128, "x" * LONGEST_KEY])
def test_a_short_key_stands_in_its_name_verbatim(key: str) -> None:
    assert named(key) == "{app:" + key + "}"


def test_an_enum_member_is_named_by_its_value() -> None:
    assert named(Tenant.ACME) == named("acme")


@pytest.mark.parametrize("key", ["x" * (LONGEST_KEY + 1), "é" * 129, "😀" * 65])
def test_a_key_over_256_bytes_becomes_its_first_64_characters_and_a_digest(key: str) -> None:
    assert re.fullmatch(re.escape("{app:" + key[:64]) + "#[0-9a-f]{32}}", named(key))


def test_the_digest_never_changes() -> None:
    """Hosts of different versions share buckets: a golden value."""
    assert named("x" * 300) == "{app:" + "x" * 64 + "#c2f093e41879e412280bfcc0ed6533e4}"


@given(keys, keys)
def test_distinct_keys_have_distinct_names(one: str, other: str) -> None:
    assume(one != other)
    assert named(one) != named(other)


@given(st.text(min_size=64, max_size=70), st.text(min_size=1), st.text(min_size=1))
def test_long_keys_that_begin_alike_have_distinct_names(begin: str, one: str, other: str) -> None:
    assume(one != other)
    long = begin + "x" * LONGEST_KEY
    assert named(long + one) != named(long + other)


@given(keys)
def test_no_key_can_pose_as_a_shortened_one(key: str) -> None:
    """Else a tenant who picks its key could spend the quota of another whose long key it knows."""
    name = named(key + "x" * LONGEST_KEY)
    posing = name.removeprefix("{app:").removesuffix("}")
    assert named(posing) != name

"""Which limit a key has, as a table; limits that cannot work are errors where the limiter is made."""

from collections.abc import Callable
from typing import Any

import pytest

from batchlimit import Queue
from batchlimit.concurrency import Keyed, KeyedConcurrencyLimiter
from batchlimit.laws import AIMD, Fixed, Gitaly

LIMITS: dict[str, int | Keyed] = {"*": 1, "repo:*": 2, "repo:42": 3, "repo:4*": 4, "user:[ab]*": Keyed(5)}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("repo:42", "repo:42"),
        ("repo:43", "repo:*"),
        ("repo:4", "repo:*"),
        ("user:ann", "user:[ab]*"),
        ("user:cid", "*"),
    ],
)
def test_the_key_itself_comes_first_then_patterns_in_their_order_and_last_the_star(key: str, name: str) -> None:
    limiter = KeyedConcurrencyLimiter(LIMITS)
    with limiter.acquire(key):
        assert limiter.statistics().patterns[name].in_flight == 1


def test_several_keys_are_acquired_in_the_order_of_the_limits() -> None:
    limiter = KeyedConcurrencyLimiter({"user:*": 1, "all": 1, "repo:*": 1})
    with limiter.acquire_all(["all", "repo:y", "user:x"]) as permits:
        assert permits.keys == ("user:x", "all", "repo:y")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({}, "limits need an entry"),
        ([("a", 1)], "limits must be like"),
        ({"a": 0}, r"a limit \(calls\) must be at least 1, not 0 \(the limit of 'a'\)"),
        ({"a": True}, "a whole number, or makes a law, not True"),
        ({"a": "5"}, "a whole number, or makes a law, not '5'"),
        ({"a": Fixed(5)}, "give what makes one, since each key needs its own"),
        ({"a": lambda: 5}, r"law must be a law, like Fixed\(20\), not 5"),
        ({"a": Gitaly}, "needs watchers="),
        ({3: 5}, "names of type str"),
    ],
)
def test_limits_that_cannot_work(limits: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        KeyedConcurrencyLimiter(limits)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Keyed(5, queue=10),  # type: ignore[arg-type]
        lambda: KeyedConcurrencyLimiter({"*": 1}, max_keys=0),
        lambda: KeyedConcurrencyLimiter({"*": 1}, idle_after=-1),
        lambda: KeyedConcurrencyLimiter({"*": 1}, classify=3),  # type: ignore[arg-type]
    ],
)
def test_arguments_that_cannot_work(make: Callable[[], object]) -> None:
    with pytest.raises((TypeError, ValueError), match="must be"):
        make()


@pytest.mark.parametrize(
    ("key", "message"),
    [("other", "no limit for key 'other'; add a"), ("", "a key must not be empty"), (b"a", "a key must be a str")],
)
def test_keys_that_have_no_limit(key: Any, message: str) -> None:
    limiter = KeyedConcurrencyLimiter({"repo:*": Keyed(lambda: AIMD(minimum=1, timeout=5), queue=Queue(5))})
    with pytest.raises((TypeError, ValueError), match=message):
        limiter.acquire(key)
    with pytest.raises((TypeError, ValueError), match=message):
        limiter.acquire_all(["repo:1", key])


@pytest.mark.parametrize(("keys", "message"), [([], "at least one key"), ("a", "several keys"), (["a", "a"], "twice")])
def test_several_keys_are_named_once_each(keys: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        KeyedConcurrencyLimiter({"*": 1}).acquire_all(keys)

"""What on_failure may be, and which policy a key has."""

import pytest

from batchlimit.quota.failure_policy import CLOSED, FailurePolicy, failure_rule


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

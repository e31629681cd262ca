"""Which override counts for which key at which time, as a table."""

import math
import random

import pytest

from batchlimit.quota.overrides.override import KeyRule, NotUnderstood, Override
from batchlimit.quota.overrides.overrides import MOST, NONE, InForce, Overrides
from batchlimit.quota.quota import Quota

CODE = Quota(1000.0)


def override(name: str, rate: float, *, until: float | None = None, at: float = 0.0) -> Override:
    return Override(name, Quota(rate, 100), until, at)


RULES = [
    override("search:ann", 1.0, until=100.0),
    override("search:*", 2.0, until=200.0),
    override("search:a*", 3.0, until=150.0),
    override("*:ann", 4.0),
    override("search:b?b", 5.0, at=10.0),
    override("search:[bc]ob", 6.0, at=20.0),
    override("*", 7.0, until=300.0),
    override("export", 8.0),
    Override("held", Quota(9.0, 100), until=100.0, covered=override("held", 10.0)),
    Override("h?ld", Quota(11.0, 100), until=200.0, at=9.0, covered=override("h?ld", 12.0)),
    override("?eld", 13.0, at=5.0),
    override("tie:a?", 14.0),
    override("tie:?b", 15.0),
]


@pytest.mark.parametrize(
    ("key", "now", "rate"),
    [
        ("search:ann", 99.9, 1.0),  # the key itself comes first
        ("search:ann", 100.0, 3.0),  # it has ended: the pattern with most characters of its own
        ("search:ann", 150.0, 2.0),
        ("search:ann", 200.0, 4.0),
        ("search:ann", 300.0, 4.0),
        ("search:bob", 0.0, 6.0),  # eight characters stand for themselves... and of two alike the one set later
        ("search:cob", 0.0, 6.0),
        ("search:bub", 0.0, 5.0),
        ("search:zoe", 0.0, 2.0),
        ("search:zoe", 200.0, 7.0),
        ("search:zoe", 300.0, None),  # the code
        ("export", 0.0, 8.0),
        ("export:all", 0.0, 7.0),
        ("Export", 300.0, None),  # case counts
        ("held", 99.9, 9.0),
        ("held", 100.0, 10.0),  # what it covered
        ("held", 300.0, 10.0),
        ("hxld", 199.9, 11.0),
        ("hxld", 200.0, 12.0),
        ("heeld", 0.0, 7.0),
        ("tie:ab", 0.0, 14.0),  # of two alike that were set at once the later one by name, in all processes
    ],
)
def test_the_override_that_counts(key: str, now: float, rate: float | None) -> None:
    for shuffle in range(5):
        rules = random.Random(shuffle).sample(RULES, len(RULES))
        quota = InForce.at(Overrides(1, rules), now).rule(key, KeyRule(CODE)).quota
        assert quota == (CODE if rate is None else Quota(rate, 100)), shuffle


def test_an_edition_grows_with_each_end_and_with_each_revision() -> None:
    old, new = Overrides(7, RULES), Overrides(8, ())
    editions = [old.edition(now) for now in (0.0, 100.0, 120.0, 150.0, 1e9)]
    assert editions == sorted(editions)
    assert [one - editions[0] for one in editions] == [0, 2, 2, 3, 6]
    assert new.edition(0.0) > editions[-1]
    assert Overrides(2**38 - 1, RULES).edition(1e9) < 2**53


def test_the_next_end_is_the_first_that_has_not_come() -> None:
    overrides = Overrides(7, RULES)
    assert [overrides.next_end(now) for now in (0.0, 100.0, 299.0, 300.0)] == [100.0, 150.0, 300.0, math.inf]


def fields(**more: str) -> dict[str, str]:
    return {"revision": "7", "form": "1", "rule:ann": '{"quota": "5/s"}'} | more


def test_a_hash_reads_as_its_overrides() -> None:
    read = Overrides.read(fields(**{"rule:rule:*": '{"quota": "6/s", "until": 9.5}'}))
    assert (read.revision, {each.name: str(each.quota) for each in read}) == (7, {"ann": "5/s", "rule:*": "6/s"})
    again = Overrides.read(read.fields)
    assert (again.revision, list(again)) == (7, list(read))


@pytest.mark.parametrize("revision", [1, 2**38 - 1])
def test_a_revision_of_the_first_change_and_of_the_last_is_read(revision: int) -> None:
    assert Overrides.read(fields(revision=str(revision))).revision == revision


@pytest.mark.parametrize(
    "damage",
    [
        {"form": "2"},
        {"form": ""},
        {"revision": "0"},
        {"revision": "-1"},
        {"revision": "seven"},
        {"revision": "\u0667"},
        {"revision": str(2**38)},
        {"revision": str(2**60)},
        {"rule:bob": "garbage"},
        {"rule:": '{"quota": "5/s"}'},
        {"mode": "shadow"},
    ],
    ids=str,
)
def test_a_hash_with_anything_strange_is_refused_whole(damage: dict[str, str]) -> None:
    with pytest.raises(NotUnderstood):
        Overrides.read(fields(**damage))


def test_as_many_overrides_as_there_may_be_are_read_and_one_more_are_not() -> None:
    many = {f"rule:user:{n}": '{"quota": "5/s"}' for n in range(MOST - 1)}
    assert len(Overrides.read(fields(**many))) == MOST
    with pytest.raises(NotUnderstood, match="10001 overrides"):
        Overrides.read(fields(**many, **{"rule:one more": '{"quota": "5/s"}'}))


def test_a_revision_reads_those_alone_that_changed() -> None:
    texts = {f"rule:{number}": Override(str(number), Quota(5.0)).encode() for number in range(100)}
    before = Overrides.read({"revision": "7", "form": "1", **texts})
    after = Overrides.read({"revision": "8", "form": "1", **texts, "rule:1": Override("1", Quota(6.0)).encode()})
    assert [one.name for one in after if one is not before.by_name[one.name]] == ["1"]


def test_overrides_after_a_change_are_those_that_would_be_read() -> None:
    one, two = Override("ann", Quota(5.0), until=9.0), Override("search:*", Quota(6.0))
    before = Overrides(7, [one, Override("bob", Quota(1.0))])
    after = before.changed(8, {"bob": "", "search:*": two.encode(), "gone": ""})
    assert (after.revision, list(after), after.next_end(0.0)) == (8, [one, two], 9.0)


@pytest.mark.parametrize(
    ("ends", "code", "until"),
    [
        ({"key": 9.0}, 5.0, 4.0),
        ({"key": 9.0}, 0.0, math.inf),
        ({"key": 9.0, "k*": 30.0}, 5.0, 25.0),
        ({"key": 9.0, "*": None}, 5.0, math.inf),
        ({"key": 30.0, "k*": 9.0}, 5.0, 25.0),
        ({}, 5.0, -5.0),
    ],
    ids=str,
)
def test_a_key_is_held_until_the_last_of_the_holds_that_follow_each_other(
    ends: dict[str, float | None], code: float, until: float
) -> None:
    holds = [Override(name, Quota(0.0), until=end) for name, end in ends.items()]
    in_force = InForce.at(Overrides(7, holds), 0.0, offset=5.0)
    assert in_force.held_until("key", KeyRule(Quota(code))) == until


def test_of_several_fields_that_nobody_knows_the_first_is_named() -> None:
    with pytest.raises(NotUnderstood, match="first"):
        Overrides.read({"form": "1", "revision": "9", "first": "x", "second": "y"})


def test_an_instance_begins_with_what_no_overrides_are() -> None:
    assert NONE.edition == Overrides().edition(0.0)
    assert (NONE.overrides.by_name, NONE.as_of, NONE.offset) == ({}, 0.0, 0.0)


def test_an_edition_counts_ends_above_revisions_alike_in_all_versions() -> None:
    assert Overrides(3).edition(0.0) == 3 * 2**14

"""Instances with scripts from before there were ranks share a bucket with instances of today."""

import gzip
from pathlib import Path

import pytest

from batchlimit.bucket.messages import Ask, Grant
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.scripts import read_grant, take_arguments
from tests.lua.interpreter import Interpreter

_BEFORE = Path(__file__).with_name("golden") / "take_before_ranks.lua.gz"
_OLD, _NEW = Quota(100.0, 100), Quota(10.0, 20)
_OVERRIDE, _CODE = 5, 0


class Mixed:
    """One bucket, asked by an instance with the old scripts and by one with those of today."""

    def __init__(self) -> None:
        self.lua = Interpreter()
        self.lua.now = 1_700_000_000_000_000
        self.lua.load("before", gzip.decompress(_BEFORE.read_bytes()).decode())
        self._seq = 0

    def old(self, quota: Quota, *, age: float, need: int = 0) -> Grant:
        """It sends no rank: the old script knows fewer arguments."""
        ask = self._ask("old", age, need)
        self.lua.load("told", _in_the_terms_of_today(gzip.decompress(_BEFORE.read_bytes()).decode()))
        return read_grant(self.lua.listed("told", take_arguments(quota, ask)))

    def new(self, quota: Quota, *, age: float, rules: int = _CODE, need: int = 0) -> Grant:
        return self.lua.take(quota, self._ask("new", age, need)._replace(rules=rules))

    def _ask(self, name: str, age: float, need: int) -> Ask:
        self._seq += 1
        self.lua.now += 1000
        return Ask(name, self._seq, need, need, need, age=age)


def _in_the_terms_of_today(script: str) -> str:
    """Have the old script take what today's client sends, for an ask that begins at once, and say what it reads."""
    begin = "ARGV[3] = string.gsub(ARGV[3], ' (%S+)$', ' 0 %1 1')\nlocal reply = (function()\n"
    end = "\nend)()\nlocal level = table.remove(reply, 6)\nreply[10], reply[11] = 0, 1000 * level\nreturn reply"
    return begin + script + end


def test_a_bucket_from_before_is_read_and_keeps_what_was_used() -> None:
    mixed = Mixed()
    assert mixed.old(_OLD, age=10.0, need=40).granted == 40
    assert mixed.new(_OLD, age=1.0).level == 60
    assert mixed.old(_OLD, age=10.0, need=10).level == 50


def test_an_old_instance_obeys_an_override_that_it_has_never_heard_of() -> None:
    mixed = Mixed()
    mixed.old(_OLD, age=10.0)
    assert mixed.new(_NEW, age=3600.0, rules=_OVERRIDE).quota is None
    assert mixed.old(_OLD, age=10.0).quota == _NEW
    assert mixed.old(_OLD, age=0.0).quota == _NEW, "nor does one that was started since undo it"


@pytest.mark.parametrize("first", ["old", "new"])
def test_among_code_the_younger_quota_counts_as_before(first: str) -> None:
    mixed = Mixed()
    mixed.old(_OLD, age=10.0)
    if first == "new":
        mixed.new(_NEW, age=20.0)
    assert mixed.new(_NEW, age=5.0).quota is None
    assert mixed.old(_OLD, age=10.0).quota == _NEW
    assert mixed.old(_OLD, age=1.0).quota is None
    assert mixed.new(_NEW, age=5.0).quota == _OLD


def test_old_and_new_instances_in_turn_lease_no_more_than_the_burst() -> None:
    mixed = Mixed()
    granted = 0
    for turn in range(20):
        grant = mixed.old(_OLD, age=10.0, need=3) if turn % 2 else mixed.new(_OLD, age=1.0, need=3)
        granted += grant.granted
    assert granted <= 100 + 3

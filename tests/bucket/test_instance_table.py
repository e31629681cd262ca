"""A bucket forgets instances that are silent, in time."""

import pytest

from batchlimit.bucket.fair_share import ACTIVE
from batchlimit.bucket.spendable import InstanceEntry, InstanceTable


@pytest.mark.parametrize(("known", "now", "is_there"), [(0, 5, False), (5, 5, False), (6, 5, True)])
def test_an_instance_that_has_had_a_refund_has_its_entry_until_the_refund_is_forgotten(
    known: int, now: int, is_there: bool
) -> None:
    table = InstanceTable()
    one = table.enter("a", 0)
    table.weigh(one, 2, 0)
    one.known = known
    table.forget("a", one, now)
    assert ("a" in table.instances, table.active, table.weights) == (is_there, 0, 0)


@pytest.mark.parametrize(
    ("expires", "seen", "is_over"), [(0, 0, True), (ACTIVE, 0, True), (ACTIVE + 1, 0, False), (0, 1, False)], ids=str
)
def test_an_instance_is_active_until_its_lease_is_over_and_it_asked_long_ago(
    expires: int, seen: int, is_over: bool
) -> None:
    assert InstanceEntry(last=0, seen=seen, expires=expires).is_over(ACTIVE) is is_over

"""What memory says of a call that has not come yet."""

import pytest

from batchlimit.quota.quota import Quota
from batchlimit.reservoir.forecast import Prospect
from tests.reservoir.entry import Entry


@pytest.mark.parametrize(
    ("cost", "at", "prospect"),
    [(2, 0.0, Prospect.ADMITTED), (3, 0.0, Prospect.UNKNOWN), (2, 1.0, Prospect.UNKNOWN)],
)
def test_a_call_is_admitted_by_what_is_leased_and_else_the_store_knows(
    cost: int, at: float, prospect: Prospect
) -> None:
    assert Entry(tokens=2).reservoir.forecast.prospect(cost, at) is prospect


def test_a_call_is_refused_while_the_bucket_is_short() -> None:
    entry = Entry()
    entry.refuse(entry.fetch(entry.join(1, 0.1)))
    assert [entry.reservoir.forecast.prospect(1, at) for at in (0.0, 0.6)] == [Prospect.REFUSED, Prospect.UNKNOWN]


def test_of_a_bucket_that_owes_nothing_remains() -> None:
    entry = Entry()
    entry.grant(entry.fetch(entry.join(1, 0.1)), level=-3, retry_after=0.5)
    assert entry.reservoir.forecast.remaining(0.0) == 0


def test_the_store_is_asked_last_of_all() -> None:
    """A call at several keys goes through them in this order."""
    assert sorted(Prospect) == [Prospect.REFUSED, Prospect.ADMITTED, Prospect.UNKNOWN]
    assert len(set(Prospect)) == 3


@pytest.mark.parametrize(("deadline", "is_hopeless"), [(0.25, True), (1.25, False)])
def test_who_waits_is_hopeless_where_the_bucket_is_short_until_after_its_deadline(
    deadline: float, is_hopeless: bool
) -> None:
    entry = Entry(Quota(1.0, 1))
    entry.refuse(entry.fetch(entry.join(1)), retry_after=1.0)
    assert entry.reservoir.forecast.is_hopeless(entry.join(1, deadline), 0.0) is is_hopeless


def test_nobody_is_hopeless_where_the_bucket_was_not_short() -> None:
    """Others may have given back what they had: its last level says nothing."""
    entry = Entry(Quota(1.0, 1), tokens=0)
    assert not entry.reservoir.forecast.is_hopeless(entry.join(1, 0.25), 0.0)

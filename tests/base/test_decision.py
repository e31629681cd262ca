"""A Decision is written fast, and is then as frozen as any other."""

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest

from batchlimit import Decision, Quota
from batchlimit.reservoir.statistics import decision


def test_a_decision_that_was_written_as_a_draft_is_one_that_was_made() -> None:
    quota = Quota.parse("100/s; 1000/h")
    drafted = decision(quota, 40, 0.0, "store", 1, (90.0, 400.0))
    made = Decision(True, 100, 40, 0.0, 2160.0, "store", quota, 1)
    assert (drafted, hash(drafted), repr(drafted)) == (made, hash(made), repr(made))
    assert (type(drafted), drafted.quota, drafted.binding) == (Decision, quota, 1)
    assert copy.deepcopy(drafted) == pickle.loads(pickle.dumps(drafted)) == made
    with pytest.raises(FrozenInstanceError):
        drafted.remaining = 41  # type: ignore[misc]

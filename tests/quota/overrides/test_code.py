"""What a file says instead of the code: its quotas, and from which revision they count."""

from typing import Any

import pytest

from batchlimit.quota.lookup import quota_rule
from batchlimit.quota.overrides.code import Code, CodeLimit, CodeLimits, Rank
from batchlimit.quota.quota import Quota

FIVE = Quota(5.0)


@pytest.mark.parametrize(("said", "counts"), [(None, 3), (0, 0), (7, 7)])
def test_a_file_without_a_revision_has_that_of_the_limiter(said: int | None, counts: int) -> None:
    made = Code(quota_rule(Quota(9.0)), "closed", "enforce", Rank(3, 50.0))
    found = made.by_file(CodeLimits({"ann": CodeLimit(FIVE)}, said), made, 80.0)
    assert (found.rank, found.quota("ann")) == (Rank(counts, 80.0), FIVE)


@pytest.mark.parametrize(("mode", "is_enforced"), [("enforce", True), ("shadow", False)])
def test_all_keys_are_enforced_unless_the_code_says_another_mode(mode: Any, is_enforced: bool) -> None:
    assert Code(quota_rule(FIVE), "closed", mode, Rank(0, 0.0)).is_enforced is is_enforced


def test_a_key_of_which_the_file_says_no_more_fails_and_is_enforced_as_the_code_says() -> None:
    made = Code(quota_rule(Quota(9.0)), "open", "shadow", Rank(3, 50.0))
    found = made.by_file(CodeLimits({"ann": CodeLimit(FIVE)}), made, 80.0)
    assert (found.policy("ann"), found.mode("ann"), found.is_enforced) == (made.policy("ann"), "shadow", False)

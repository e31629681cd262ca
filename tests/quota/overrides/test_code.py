"""What a file says instead of the code: its quotas, and from which revision they count."""

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

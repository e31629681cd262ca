"""What an error of one call is to each of its spends."""

import pytest

from batchlimit.bucket.messages import Groups, Spend
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.keyspace.key_spend import of_each
from batchlimit.quota.quota import Quota

ANN, BOB = (Spend(key, Quota(1.0), 1) for key in ("ann", "bob"))
DAMAGED, AWAY = BucketUnavailable("damaged", code="DAMAGED"), StoreUnavailable("away")


@pytest.mark.parametrize(
    ("error", "groups", "expected"),
    [
        (DAMAGED, [[ANN]], DAMAGED),
        (DAMAGED, [[ANN, BOB]], None),
        (DAMAGED, [[ANN], [BOB]], None),
        (AWAY, [[ANN]], AWAY),
        (AWAY, [[ANN, BOB]], AWAY),
        (AWAY, [[ANN], [BOB]], AWAY),
    ],
)
def test_of_several_buckets_only_take_says_which_one_is_damaged(
    error: StoreUnavailable, groups: Groups, expected: StoreUnavailable | None
) -> None:
    assert of_each(error, groups) is expected

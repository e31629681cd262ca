"""What operators do while processes run: set other quotas, take them back, and see who did what."""

from batchlimit.admin.admin import Admin
from batchlimit.admin.async_admin import AsyncAdmin, AsyncBuckets
from batchlimit.admin.buckets import Buckets, Plan, Touch
from batchlimit.admin.terms import Terms, Wish
from batchlimit.bucket.state import BucketState
from batchlimit.errors import RulesChanged
from batchlimit.quota.overrides.override import Override
from batchlimit.quota.overrides.overrides import Entry, Overrides
from batchlimit.quota.overrides.plan import Difference

__all__ = [
    "Admin", "AsyncAdmin", "AsyncBuckets", "BucketState", "Buckets", "Difference", "Entry", "Override", "Overrides",
    "Plan", "RulesChanged", "Terms", "Touch", "Wish",
]  # fmt: skip

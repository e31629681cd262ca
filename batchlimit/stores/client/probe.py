"""How a store is asked whether it could serve a bucket, without touching the bucket.

By the real script, so that whatever would fail a take shows: a replica, a full memory, an ACL, a script that does not
end. It runs on a bucket of its own beside the other, in the same slot, and asks it for nothing; that one is forgotten
within seconds.
"""

from batchlimit.bucket.messages import Ask
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.key import bucket_name
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.diagnosis import ELSEWHERE, code_of

PROBE = Ask("probe", 1, need=0, queued=0, want=0)
PROBE_QUOTA = Quota(1.0, 1)


def probe_name(prefix: str, key: str) -> str:
    """Return the name of the bucket that is asked in place of the key's; the hash tag keeps the two together."""
    return bucket_name(prefix, key) + ":probe"


def is_elsewhere(error: BucketUnavailable) -> bool:
    """Whether the key's slot is another node's. All else that is wrong with one key is wrong with the probe's alone."""
    return isinstance(error.__cause__, Exception) and code_of(error.__cause__) in ELSEWHERE

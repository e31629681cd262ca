"""A probe: could the store serve a bucket now? It does not touch the bucket.

It runs the real script, so it fails for every reason that fails a take: a replica, a full memory, an ACL, a script that
does not end. It runs on another bucket in the same slot and asks for no tokens. That bucket expires within seconds.
"""

from batchlimit.bucket.messages import Ask
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.key import bucket_name
from batchlimit.quota.quota import Quota
from batchlimit.stores.client.diagnosis import ELSEWHERE, code_of

PROBE = Ask("probe", 1, need=0, queued=0, want=0)
PROBE_QUOTA = Quota(1.0, 1)


def probe_name(prefix: str, key: str) -> str:
    """Return the name of the bucket that a probe of this key asks; the hash tag keeps both in one slot."""
    return bucket_name(prefix, key) + ":probe"


def is_elsewhere(error: BucketUnavailable) -> bool:
    """Whether the key's slot is at another node. Any other error of one key concerns the probe's bucket alone."""
    return isinstance(error.__cause__, Exception) and code_of(error.__cause__) in ELSEWHERE

"""Who is interrupted while it lets a key entry go leaves nothing of it: it is done again, and counted once."""

from functools import partial
from itertools import count

import pytest

from batchlimit import Quota, RateLimiter
from batchlimit.batching import FixedBatch
from tests.opcodes import Signals
from tests.sync.stage import KEY, Clock, Stage

pytestmark = pytest.mark.usefixtures("without_refresher")


def test_an_entry_that_was_half_let_go_leaves_no_page_behind() -> None:
    """A page held it for ever, with those who had waited there."""
    for place in count(1):
        with RateLimiter(Stage(), Quota(0.001, 100), sizer=FixedBatch(50), clock=Clock()) as limiter:
            assert limiter.try_acquire(KEY)
            keyspace, entry = limiter._registry._keyspace, limiter._entries[KEY]
            assert entry.evict()
            signals = Signals(place)
            signals.run(partial(keyspace.let_go, entry))
            keyspace.let_go(entry)
            seen = limiter.statistics()
            assert (sum(map(len, keyspace._tallies.pages)), len(keyspace._cache)) == (0, 0), signals.raised
            assert (seen.keys, seen.admitted) == (0, 1), signals.raised
            if not signals.raised:
                break
    assert place > 10

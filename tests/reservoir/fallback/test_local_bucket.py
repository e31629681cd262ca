"""What an instance grants itself while the store is away, as tables of (time, (needed, wanted), granted)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.quota.quota import Quota
from batchlimit.reservoir.fallback import LocalBucket
from tests.reservoir.world import SECOND, about, excess

HUNDRED = Quota(100.0, 100)


@pytest.mark.parametrize(
    ("spent", "at", "tokens", "wait"),
    [
        (25, 0.0, 1, 0.04),
        (25, 0.03, 1, 0.01),
        (25, 0.0, 25, 1.0),
        (25, 0.5, 60, 0.5),
        (20, 0.0, 5, 0.0),
        (20, 1.0, 9, 0.0),
    ],
)
def test_it_says_when_tokens_are_there_or_when_it_is_full(spent: int, at: float, tokens: int, wait: float) -> None:
    found = LocalBucket(HUNDRED, 4, 100.0, 0.0)
    assert found.grant(spent, spent, 0.0) == (spent, 0.0)
    assert found.fits_in(tokens, at) == about(wait)
    later = LocalBucket(HUNDRED, 4, 100.0, 7.0)
    later.grant(spent, spent, 7.0)
    assert later.fits_in(tokens, 7.0 + at) == about(wait)


@given(
    st.integers(1, 7),
    st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 8), st.integers(0, 50), st.integers(0, 9)), max_size=40),
)
def test_hosts_together_admit_no_more_than_the_quota(instances: int, steps: list[tuple[float, int, int, int]]) -> None:
    """With costs up to a share of the burst; each of the instances, with the same luck."""
    quota = Quota(70.0, 70)
    share, now, granted = LocalBucket(quota, instances, 70.0, 0.0), 0.0, []
    for elapsed, first, more, back in steps:
        now += elapsed
        tokens, wait = share.grant(first, first + more, now)
        assert (tokens > 0) == (wait == 0.0)
        used = max(0, tokens - back)
        share.put_back(tokens - used, now)
        granted.append((round(now * SECOND), used * instances))
    assert excess(granted, 70.0, 70) < 0.01

"""What a change would touch is seen by a look that is bounded, on one server and in a cluster."""

from typing import Any

import pytest

from batchlimit.admin import Admin, buckets
from batchlimit.bucket.messages import Ask
from batchlimit.quota.overrides.override import Override
from batchlimit.quota.overrides.overrides import Overrides
from batchlimit.quota.quota import Quota
from batchlimit.stores import RedisStore
from batchlimit.stores.protocols import Store

HUNDRED = Quota(0.001, 100)


def use(store: Store, *keys: str) -> None:
    for key in keys:
        store.take(key, HUNDRED, Ask("one", 1, 10, 10, 10, round_trip=2.0))


@pytest.fixture
def shown(store: Store) -> RedisStore:
    if not isinstance(store, RedisStore):
        pytest.skip("it shows no buckets")
    return store


def test_all_live_buckets_are_seen_wherever_they_are(shown: RedisStore) -> None:
    use(shown, *(f"search:{n}" for n in range(40)), "export", "search", "s*arch:1")
    found = buckets.planned(shown, shown._prefix, Overrides(), Override("search:*", Quota(20.0)), 0.0, most=1_000_000)
    assert sorted(each.key for each in found.touched) == sorted(f"search:{n}" for n in range(40))
    assert found.is_whole
    odd = buckets.planned(shown, shown._prefix, Overrides(), Override("s[*]arch:?", Quota(20.0)), 0.0, most=1_000_000)
    assert [each.key for each in odd.touched] == ["s*arch:1"]


def test_the_look_ends_at_its_bound_and_says_so(valkey_store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "_STEP", 10)
    use(valkey_store, *(f"search:{n}" for n in range(200)))
    found = buckets.planned(valkey_store, valkey_store._prefix, Overrides(), Override("*", Quota(20.0)), 0.0, most=50)
    assert (found.names, found.is_whole) == (50, False)
    assert len(found.touched) < 200


def test_a_user_who_may_not_look_is_told_so(valkey_store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    import redis

    def refused(*_args: Any) -> Any:
        raise redis.exceptions.NoPermissionError("no")

    monkeypatch.setattr(RedisStore, "primaries", refused)
    found = Admin(valkey_store, prefix=valkey_store._prefix).plan("search:*", "20/s")
    assert "may not SCAN" in found.warnings[0]

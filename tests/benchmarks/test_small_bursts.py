"""What small bursts are held against asks a server as often as it counts a token."""

from contextlib import closing

import pytest
import redis

from batchlimit.stores.embedded import EmbeddedStore
from benchmarks import small_bursts


@pytest.mark.parametrize("api", small_bursts.APIS)
def test_a_floor_that_asks_sends_one_request_a_token(api: str) -> None:
    with closing(EmbeddedStore()) as store, closing(redis.Redis.from_url(store.url)) as client:
        client.config_resetstat()  # the store was asked whether it is there
        count = small_bursts.floor(api, 100.0, 0.05, store.url.removeprefix("unix://"))
        assert client.info("commandstats")["cmdstat_ping"]["calls"] == count > 0


@pytest.mark.parametrize("api", small_bursts.APIS)
def test_a_floor_that_only_sleeps_sleeps_for_each_token(api: str) -> None:
    assert 0 < small_bursts.floor(api, 100.0, 0.05) <= 6

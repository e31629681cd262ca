"""What an application leased goes back to a real store when its server is told to stop."""

from typing import Any

import pytest

from batchlimit.rules import Rules
from batchlimit.stores import RedisStore
from tests.depth import depth
from tests.integrations.faces.rules import RULES
from tests.integrations.matrix.serve import WEBSOCKETS
from tests.integrations.matrix.served import serving

KEY = "bytes:whole"


@pytest.mark.parametrize(
    "face", depth(("asgi", "quart", "aiohttp"), WEBSOCKETS)
)  # those that hear that the server stops
def test_tokens_go_back_when_a_server_stops(face: str, servers: Any) -> None:
    url = servers.get("valkey").url
    with serving(face, url) as served:
        assert len(served.get("/stream", "whole").content) == 30
        served.until_left(KEY, 70)
        served.stop()
        prefix = served.prefix
    store = RedisStore.from_url(url, prefix=prefix)
    try:
        assert store.peek(KEY, Rules(RULES).quotas["bytes:*"]).level == 70  # of 50 that it had leased 20 were left
    finally:
        store.close()

"""How an application with limits is tested: no server, no sleep, no state that one test leaves to another."""

import asyncio
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from batchlimit import RateLimited
from batchlimit.testing import FrozenLimits
from examples import login_codes


@pytest.fixture
def client(frozen_limits: FrozenLimits) -> Iterator[TestClient]:
    with TestClient(login_codes.app, client=("192.0.2.1", 50_000)) as client:
        yield client


def ask(client: TestClient) -> int:
    return client.post("/codes", params={"address": "ann@example.org"}).status_code


def test_an_address_gets_five_codes_a_minute(client: TestClient, frozen_limits: FrozenLimits) -> None:
    assert [ask(client) for _ in range(6)] == [200] * 5 + [429]
    frozen_limits.advance("1m")
    assert [ask(client) for _ in range(6)] == [200] * 5 + [429]


def test_a_refusal_says_when_to_come_back(client: TestClient, frozen_limits: FrozenLimits) -> None:
    frozen_limits.drain("codes:192.0.2.1")
    refused = client.post("/codes", params={"address": "ann@example.org"})
    assert refused.status_code == 429
    wait = int(refused.headers["retry-after"])
    assert wait >= 864  # a day has 100; some seconds more, so that not all clients come back at once
    frozen_limits.advance(wait)
    assert ask(client) == 200


def test_the_limit_of_a_day_outlasts_the_minute(client: TestClient, frozen_limits: FrozenLimits) -> None:
    frozen_limits.drain("codes:192.0.2.1")
    frozen_limits.advance("14m")
    assert ask(client) == 429
    frozen_limits.advance("1m")
    assert [ask(client) for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("calls", range(1, 6))
def test_every_test_begins_with_full_buckets(client: TestClient, calls: int) -> None:
    assert [ask(client) for _ in range(calls)] == [200] * calls


def test_messages_wait_for_the_provider(frozen_limits: FrozenLimits) -> None:
    async def send_many(messages: int) -> None:
        await asyncio.gather(*(login_codes.send(f"user{i}@example.org") for i in range(messages)))

    asyncio.run(send_many(6))
    assert frozen_limits.elapsed == pytest.approx(2.0, abs=0.01)
    with pytest.raises(RateLimited):
        asyncio.run(send_many(20))

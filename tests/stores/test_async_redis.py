"""What a store for tasks must bear: callers who are cancelled at any await, and many of them at once."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis.asyncio

from batchlimit import StoreUnavailable
from batchlimit.bucket.messages import Ask, Level, Spend
from batchlimit.quota.quota import Quota
from batchlimit.stores import AsyncRedisStore
from tests.awaiting import awaited
from tests.nodes import node
from tests.servers import Server, Servers, valkey_binary
from tests.stores.opened import opened_for_tasks

HUNDRED = Quota(0.001, 100)
LONG = 30.0


def ask(instance: str, need: int = 1) -> Ask:
    return Ask(instance, 1, need=need, queued=need, want=need, round_trip=2.0)


async def turns(n: int) -> None:
    """Let everything else on the loop take so many steps."""
    for _ in range(n):
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", ["valkey", "cluster", "sentinel"])
@pytest.mark.parametrize("warm", [False, True], ids=["connecting", "connected"])
async def test_a_cancelled_call_leaves_no_answer_for_another(
    servers: Servers, prefix: str, name: str, warm: bool
) -> None:
    """Each bucket has a level of its own; a call that got another's reply would have another level."""
    async with opened_for_tasks(servers.get(name).url, prefix) as store:
        for steps in range(0, 40, 1 if warm else 3):
            if warm:
                await store.peek("warm", HUNDRED)
            task = asyncio.create_task(store.take(f"cancelled-{steps}", HUNDRED, ask("a", 7)))
            await turns(steps)
            task.cancel()
            for key in range(3):
                assert Level(*(await store.peek(f"never-{key}", HUNDRED))[:3]) == Level(100, 0, 0)
            with contextlib.suppress(asyncio.CancelledError):
                assert (await task).granted == 7
            if not warm:
                await store.disconnect()


@pytest.mark.parametrize("pause", [0.0, 0.01])
async def test_a_reply_after_the_cancellation_reaches_no_other_call(pause: float) -> None:
    with node(valkey_binary()) as one:
        async with opened_for_tasks(one.url, "late") as store:
            await store.peek("k", HUNDRED)
            one.stop()
            calls = [asyncio.create_task(store.take(f"k{i}", HUNDRED, ask("a", 10 + i))) for i in range(8)]
            await turns(30)
            await asyncio.sleep(pause)
            for call in calls:
                call.cancel()
            one.go_on()
            levels = await asyncio.gather(*(store.peek(f"other-{i}", HUNDRED) for i in range(16)))
            assert levels == [Level(100, 0, 0, (100.0,))] * 16
            assert all(isinstance(each, asyncio.CancelledError) for each in await gathered(calls))


async def gathered(calls: Sequence[asyncio.Task[Any]]) -> list[object]:
    ended: list[object] = await asyncio.gather(*calls, return_exceptions=True)
    return ended


async def test_calls_beyond_the_limit_wait_for_a_connection_and_time_out(servers: Servers, prefix: str) -> None:
    """All connections are there; only who gets none is impatient."""
    with node(valkey_binary()) as one:
        url = f"{one.url}?health_check_interval=3600"  # or one connection is for all
        store = AsyncRedisStore.from_url(url, prefix=prefix, connect_timeout=LONG, deadline=LONG)
        await asyncio.gather(*(store.peek(f"k{i}", HUNDRED) for i in range(64)))
        store._connect_timeout = 0.05
        one.stop()
        calls = [asyncio.create_task(store.peek(f"k{i}", HUNDRED)) for i in range(65)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        (told,) = {str(call.exception()) for call in done if "none of 64" in str(call.exception())}
        assert store.address in told
        one.go_on()
        await asyncio.gather(*calls, return_exceptions=True)
        await store.aclose()


def _crowd(url: str, prefix: str, instances: int) -> Callable[[], object]:
    async def run() -> int:
        async with opened_for_tasks(url, prefix) as store:
            grants = await asyncio.gather(
                *(store.take("crowd", HUNDRED, ask(f"instance-{i}")) for i in range(instances))
            )
        return sum(grant.granted for grant in grants)

    return run


@pytest.mark.parametrize("name", ["cluster", "sentinel"])
def test_many_first_callers_are_all_served(servers: Servers, prefix: str, name: str) -> None:
    """redis-py sends the first calls of a cluster's client anywhere, and closes all connections at the fifth MOVED."""
    for i in range(5):
        assert awaited(_crowd(servers.get(name).url, f"{prefix}-{i}", 40)) == 40


@pytest.mark.parametrize("name", ["cluster", "sentinel"])
def test_a_store_begins_anew_on_another_loop(servers: Servers, prefix: str, name: str) -> None:
    store = AsyncRedisStore.from_url(servers.get(name).url, prefix=prefix, connect_timeout=LONG, deadline=LONG)

    async def run(instance: str) -> int:
        granted = (await store.take("k", HUNDRED, ask(instance))).granted
        await store.disconnect()
        return granted

    assert [asyncio.run(run(f"instance-{i}")) for i in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
async def test_a_client_of_another_encoding_has_the_buckets_that_all_have(
    valkey: Server, prefix: str, encoding: str
) -> None:
    async with (
        opened_for_tasks(valkey.url, prefix) as store,
        redis.asyncio.Redis.from_url(valkey.url, encoding=encoding) as own,
    ):
        for key in ("é", "日本"):
            assert (await store.take(key, HUNDRED, ask("a", 50))).granted == 50
            assert (await AsyncRedisStore(own, prefix=prefix).take(key, HUNDRED, ask("b", 1))).level == 49


async def test_a_lost_server_fails_every_call(valkey: Server) -> None:
    with node(valkey_binary()) as one:
        async with opened_for_tasks(one.url, "gone") as store:
            await store.peek("k", HUNDRED)
            one.kill()
            calls = [asyncio.create_task(store.peek(f"k{i}", HUNDRED)) for i in range(8)]
            assert all(isinstance(each, StoreUnavailable) for each in await gathered(calls))
            one.start()
            assert (await store.peek("k", HUNDRED)).level == 100


async def test_a_server_that_stood_still_charges_no_spend_of_which_no_task_awaits_the_answer() -> None:
    with node(valkey_binary()) as one:
        async with opened_for_tasks(one.url, "still") as store:
            spend = [[Spend("k", HUNDRED, 10)]]
            await store.peek("k", HUNDRED)  # connect: the clock of the server is known as well as a call is short
            assert (await store.spend(spend)).groups[0]
            one.stop()
            sent = store.send_spend(spend, look=False, within=0.01)
            assert sent is not None
            answer, _ = sent
            await asyncio.wait([answer], timeout=0.5)
            answer.cancel()
            one.go_on()
            assert (await store.peek("k", HUNDRED)).level == 90
            assert (await store.spend(spend, within=60.0)).groups[0]
            assert (await store.peek("k", HUNDRED)).level == 80

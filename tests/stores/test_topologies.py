"""During traffic, slots of a cluster move and nodes are lost, and sentinels name another primary."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis.exceptions import RedisClusterException, SlotNotCoveredError

from batchlimit import AsyncRateLimiter, RateLimiter, StoreUnavailable
from batchlimit.bucket.messages import Ask, Grant
from batchlimit.quota.quota import Quota
from batchlimit.stores import AsyncRedisStore, RedisStore
from batchlimit.stores.client.cluster import NOBODY, AsyncClusterTransport, is_lost
from batchlimit.stores.client.scripts import bucket_name
from tests.awaiting import awaited
from tests.nodes import Node, await_fact
from tests.servers import Servers, redis_binary, valkey_binary
from tests.stores.opened import APIS, LONG, AnyStore, opened, opened_for_tasks
from tests.sync.stage import until
from tests.topologies import SERVICE, Cluster, Watched, cluster, sentinel

HUNDRED = Quota(0.001, 100)


class Instance:
    """An instance that asks for one token at a time, and repeats what may have been carried out."""

    def __init__(self, store: AnyStore, key: str) -> None:
        self.store, self.key = store, key
        self.seq = self.granted = 0

    def take(self) -> Grant:
        """The next token."""
        self.seq += 1
        grant = self.store.take(self.key, HUNDRED, Ask("a", self.seq, 1, 1, 1, held=self.granted, round_trip=2.0))
        self.granted += grant.granted
        return grant

    def until_served(self) -> None:
        """Ask until there is an answer, as the limiter does; with the same number, so that it is charged once."""
        until(self._is_served)

    def _is_served(self) -> bool:
        try:
            self.take()
        except StoreUnavailable:
            self.seq -= 1
            return False
        return True


@pytest.fixture(scope="module")
def replicated() -> Iterator[Cluster]:
    """A cluster whose primaries have replicas, for all tests of this file; what they break they mend."""
    with cluster(valkey_binary(), 3, 1) as whole:
        yield whole


@contextlib.contextmanager
def both(url: str, prefix: str, deadline: float = LONG) -> Iterator[list[AnyStore]]:
    """A store on each API, each with buckets of its own."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(opened(each, url, f"{prefix}-{each}", deadline)) for each in APIS]


# A cluster


def test_a_slot_that_moves_takes_its_bucket_along(api: str, replicated: Cluster, prefix: str) -> None:
    name = bucket_name(prefix, "k")
    source = _owner(replicated, name)
    target = next(each for each in _primaries(replicated) if each is not source)
    with opened(api, replicated.url, prefix) as store:
        instance = Instance(store, "k")
        for _ in range(10):
            instance.take()
        replicated.begin_move(name, source, target)
        for _ in range(10):
            instance.take()  # the bucket is still there
        fresh = Instance(store, _beside(replicated, prefix, "k"))
        fresh.take()  # a bucket that is new to a slot on the move: ASK
        source.ask("MIGRATE", "127.0.0.1", target.port, name, 0, 5000)
        for _ in range(10):
            instance.take()  # ASK
        assert fresh.take().level == 98
        replicated.end_move(name, target)
        for _ in range(10):
            instance.take()  # MOVED
        assert instance.granted == 40
        level = store.peek("k", HUNDRED)
        assert level.level + level.outstanding == 100
        assert store.part("k") == target.name
        replicated.move(name, target, source)
        assert instance.take().granted == 1


def test_tasks_are_served_while_a_slot_moves_with_any_number_of_connections(replicated: Cluster, prefix: str) -> None:
    """redis-py would say ASKING on one of two connections, and send the command on the other."""
    name = bucket_name(prefix, "k")
    source = _owner(replicated, name)
    target = next(each for each in _primaries(replicated) if each is not source)
    there = next(f"t{i}" for i in range(10**6) if _owner(replicated, bucket_name(prefix, f"t{i}")) is target)

    async def play() -> list[int]:
        store = AsyncRedisStore.from_url(replicated.url, prefix=prefix, connect_timeout=LONG, deadline=LONG)
        try:
            await asyncio.gather(*(store.peek(there, HUNDRED) for _ in range(2)))
            fresh = _beside(replicated, prefix, "k")
            return [(await store.take(fresh, HUNDRED, Ask("a", seq, 1, 1, 1))).granted for seq in (1, 2)]
        finally:
            await store.aclose()

    replicated.begin_move(name, source, target)
    try:
        assert asyncio.run(play()) == [1, 1]
    finally:
        replicated.end_move(name, target)
        replicated.move(name, target, source)


def test_a_slot_without_a_node_leaves_the_others_alone(prefix: str) -> None:
    """It is a part of its own, on both APIs, and the client that knows all others is kept."""
    with cluster(valkey_binary()) as whole, both(whole.url, prefix) as stores:
        for api in APIS:
            whole.lose(bucket_name(f"{prefix}-{api}", "lost"))
        for store in stores:
            store.take("there", HUNDRED, Ask("a", 1, 1, 1, 1))
            for seq in range(2, 5):
                with pytest.raises(StoreUnavailable):
                    store.take("lost", HUNDRED, Ask("a", seq, 1, 1, 1))
            assert store.part("lost") == NOBODY
            assert store.part("there") in {node.name for node in whole.nodes}
            assert store.take("there", HUNDRED, Ask("a", 9, 1, 1, 1)).granted == 1


def test_a_lost_slot_is_no_lost_client() -> None:
    assert is_lost(RedisClusterException())
    assert not is_lost(SlotNotCoveredError())


async def _look_at(client: object) -> AsyncClusterTransport:
    line = AsyncClusterTransport(lambda: client)  # type: ignore[arg-type,return-value]
    line._look_anew()
    if line._looking is not None:
        await line._looking
    return line


def test_tasks_look_at_a_cluster_anew_in_a_task_of_their_own(replicated: Cluster) -> None:
    """redis-py would do it in the next call, whichever node that is for, and in that caller's time."""

    async def play() -> list[bool]:
        host, port = replicated.nodes[0].name.split(":")
        async with redis.asyncio.RedisCluster(host=host, port=int(port)) as client:
            known = dict(client.nodes_manager.slots_cache)
            client.nodes_manager.slots_cache.clear()
            quiet = (await _look_at(client))._looking is None
            client._initialize = True  # as a node that failed leaves it
            await _look_at(client)
            return [quiet, not client._initialize, client.nodes_manager.slots_cache.keys() == known.keys()]

    assert asyncio.run(play()) == [True, True, True]


def test_tasks_close_their_connections_after_a_node_failed_too(servers: Servers, prefix: str) -> None:
    """redis-py's client closes nothing until it has read the slots anew."""

    async def play() -> list[bool]:
        async with opened_for_tasks(servers.get("cluster").url, prefix) as store:
            await store.peek("k", HUNDRED)
            client = store._transport.client
            client._initialize = True  # as a node that failed leaves it
            known = [client.nodes_manager.nodes_cache, client.nodes_manager.startup_nodes]
            links = [each for nodes in known for node in nodes.values() for each in node._connections]
            before = any(each.is_connected for each in links)
        return [before, any(each.is_connected for each in links)]

    assert asyncio.run(play()) == [True, False]


def _beside(whole: Cluster, prefix: str, key: str) -> str:
    """Another key of the same slot."""
    slot = whole.slot(bucket_name(prefix, key))
    return next(f"n{i}" for i in range(10**6) if whole.slot(bucket_name(prefix, f"n{i}")) == slot)


def test_a_lost_node_takes_its_own_keys_along_until_its_replica_is_promoted(replicated: Cluster, prefix: str) -> None:
    lost = _owner(replicated, bucket_name(f"{prefix}-threads", "lost"))
    with both(replicated.url, prefix) as stores:
        away = [Instance(store, _key_of(lost, store)) for store in stores]
        there = [Instance(store, _key_of(None, store, but=lost)) for store in stores]
        lost.kill()
        try:
            for store, instance in zip(stores, away, strict=True):
                with pytest.raises(StoreUnavailable):
                    store.probe(instance.key)
            for instance in there:
                instance.until_served()
            replicated.promote_replica(lost)
            for store, instance in zip(stores, away, strict=True):
                instance.until_served()
                while store.part(instance.key) == lost.name:  # a redirect served it: the store looks anew meanwhile
                    instance.until_served()
                # A node that has not heard of the new primary yet may still send the store to the old.
                until(lambda one=instance: _is_probed(one))  # type: ignore[misc]
        finally:
            lost.start()
    await_fact(lambda: _is_settled(replicated), "all nodes are there, and each primary has a replica")


def _is_probed(instance: Instance) -> bool:
    with contextlib.suppress(StoreUnavailable):
        instance.store.probe(instance.key)
        return True
    return False


def _key_of(node: Node | None, store: AnyStore, but: Node | None = None) -> str:
    """A key whose bucket this node has, or another than `but`."""
    Instance(store, "any").until_served()  # the store knows the nodes now
    for i in range(1000):
        part = store.part(f"k{i}")
        if part == node.name if node else part != but.name if but else True:
            Instance(store, f"k{i}").until_served()
            return f"k{i}"
    raise AssertionError("no such key")


def _owner(whole: Cluster, name: str) -> Node:
    with redis.RedisCluster.from_url(f"redis://{whole.nodes[0].name}") as client:
        node = client.get_node_from_key(name)
    return next(each for each in whole.nodes if node is not None and each.port == node.port)


def _primaries(whole: Cluster) -> list[Node]:
    return [each for each in whole.nodes if each.info("INFO", "replication")["role"] == "master"]


def _is_settled(whole: Cluster) -> bool:
    told = [str(each.ask("CLUSTER", "INFO")) for each in whole.nodes]
    roles = [each.info("INFO", "replication") for each in whole.nodes]
    in_step = sum(role.get("master_link_status") == "up" for role in roles)
    return all("cluster_state:ok" in text for text in told) and in_step == len(whole.nodes) - whole.primaries


def test_scripts_that_a_node_lost_do_not_show(api: str, servers: Servers, prefix: str) -> None:
    url = servers.get("cluster").url
    with opened(api, url, prefix) as store:
        for seq in range(2):
            for address in url.removeprefix("redis+cluster://").split(","):
                with redis.Redis.from_url(f"redis://{address}") as client:
                    client.script_flush()
            for key in ("k0", "k1", "k2", "k3"):
                assert store.take(key, HUNDRED, Ask("a", seq + 1, 1, 1, 1)).granted == 1


def test_a_cluster_that_was_away_is_found_again(prefix: str) -> None:
    """redis-py may have struck all the nodes that it knew off its list."""
    with cluster(valkey_binary(), 1) as whole, both(whole.url, prefix) as stores:
        (one,) = whole.nodes
        for store in stores:
            store.take("k", HUNDRED, Ask("a", 1, 1, 1, 1))
        one.kill()
        for store in stores * 4:
            with pytest.raises(StoreUnavailable):
                store.peek("k", HUNDRED)
        one.start()
        for store in stores:
            Instance(store, "k").until_served()


def test_a_clusters_client_of_the_callers_knows_its_parts_and_stays_open(servers: Servers, prefix: str) -> None:
    host, _, port = servers.get("cluster").url.removeprefix("redis+cluster://").split(",")[0].partition(":")
    with redis.RedisCluster(host=host, port=int(port)) as client:
        before = (store := RedisStore(client, prefix=prefix)).part("k")
        with RateLimiter(store, "100/s") as limiter:
            assert limiter.try_acquire("k")
        assert client.ping()
        assert before == store.part("k") == client.get_node_from_key(bucket_name(prefix, "k")).name

    async def run() -> bool:
        async with redis.asyncio.RedisCluster(host=host, port=int(port)) as client:
            async with AsyncRateLimiter(client, "100/s", prefix=prefix) as limiter:
                assert await limiter.acquire("k") is None  # type: ignore[func-returns-value]
            return bool(await client.ping())

    assert awaited(run)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_in_a_cluster_too_a_client_of_another_encoding_has_the_buckets_that_all_have(
    servers: Servers, prefix: str, encoding: str
) -> None:
    url = servers.get("cluster").url
    with both(url, prefix) as plain, both(f"{url}?encoding={encoding}", prefix) as others:
        for key in ("é", "日本"):
            for own, other in zip(plain, others, strict=True):
                assert own.take(key, HUNDRED, Ask("a", 1, 50, 50, 50)).granted == 50
                assert (other.peek(key, HUNDRED).level, other.part(key)) == (50, own.part(key))


# Sentinels


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    """A primary and a replica that change places; both sides want passwords."""
    with sentinel(valkey_binary(), password="right", sentinel_password="other") as found:
        yield found


def test_a_store_finds_the_primary_that_took_over(watched: Watched, prefix: str) -> None:
    with both(watched.url, prefix) as stores:
        for instance in _served_by_another(watched, stores, watched.fail_over):
            until(lambda one=instance: _is_probed(one))  # type: ignore[misc]
            assert instance.granted == 2
            assert instance.store.part("k") == ""


def _served_by_another(watched: Watched, stores: list[AnyStore], befall: Callable[[], object]) -> list[Instance]:
    """Instances that a primary has served, and another one after what befell that."""
    instances = [Instance(store, "k") for store in stores]
    for instance in instances:
        instance.until_served()
    before = watched.primary
    befall()
    for instance in instances:
        instance.until_served()
    assert watched.primary is not before
    return instances


def test_a_store_finds_the_primary_that_took_over_from_a_dead_one(prefix: str) -> None:
    with (
        sentinel(valkey_binary(), down_after=1000) as watched,
        both(watched.url, prefix, deadline=5.0) as stores,
    ):
        _served_by_another(watched, stores, watched.primary.kill)


def test_a_cluster_of_redis_is_served_too(prefix: str) -> None:
    with cluster(redis_binary()) as whole, both(whole.url, prefix) as stores:
        for store in stores:
            for key in ("k0", "k1", "k2", "k3"):
                assert store.take(key, HUNDRED, Ask("a", 1, 1, 1, 1)).granted == 1


def test_sentinels_that_know_no_primary_are_named_without_a_password(api: str, watched: Watched, prefix: str) -> None:
    for change in (
        lambda url: url.replace(f"/{SERVICE}/", "/nobody/"),
        lambda url: url.replace("=other", "=secret"),
        lambda url: url.replace(":right@", ":secret@"),
    ):
        changed: Callable[[str], str] = change
        with opened(api, changed(watched.url), prefix) as store, pytest.raises(StoreUnavailable) as caught:
            store.probe("k")
        shown = str(caught.value) + repr(caught.value.__cause__) + str(caught.value.__cause__)
        assert str(caught.value).startswith("redis+sentinel://127.0.0.1:")
        assert not [secret for secret in ("secret", "right@", "other") if secret in shown]


def test_a_client_that_sentinels_made_is_taken(watched: Watched, prefix: str) -> None:
    nodes = [("127.0.0.1", each.port) for each in watched.sentinels]
    secrets = {"sentinel_kwargs": {"password": "other"}, "password": "right"}
    threaded = redis.sentinel.Sentinel(nodes, **secrets).master_for(SERVICE)  # type: ignore[no-untyped-call]
    with threaded, RateLimiter(threaded, "100/s", prefix=prefix) as limiter:
        assert limiter.try_acquire("k")

    async def run() -> bool:
        manager = redis.asyncio.sentinel.Sentinel(nodes, **secrets)  # type: ignore[no-untyped-call]
        async with manager.master_for(SERVICE) as client, AsyncRateLimiter(client, "100/s", prefix=prefix) as limiter:
            taken = await limiter.try_acquire("k")
        for each in manager.sentinels:
            await each.aclose()
        return bool(taken)

    assert awaited(run)
    for each in threaded.connection_pool.sentinel_manager.sentinels:
        each.close()

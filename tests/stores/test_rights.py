"""A user with the rights that docs/redis.md names can do all that a limiter does; without any one of them it cannot."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from batchlimit import StoreUnavailable
from batchlimit.bucket.messages import Ask, GiveBack, Level
from batchlimit.quota.overrides.known import UNTOLD
from batchlimit.quota.overrides.override import Override
from batchlimit.quota.overrides.overrides import Change, Overrides
from batchlimit.quota.quota import Quota
from batchlimit.stores import AsyncRedisStore, RedisStore
from batchlimit.stores.client.sentinel import NEWS as PUBLISHED
from tests.awaiting import BlockingStore, rules_of
from tests.nodes import Node, await_fact, node
from tests.servers import redis_binary, valkey_binary
from tests.topologies import Cluster, Watched, cluster, sentinel

ROOT = Path(__file__).parents[2]
# The rules in the order in which the document has them.
SERVER, OPERATOR, LOOKS, DOCTOR, FILLS, OPTIONS, CLUSTER, CLUSTER_OPERATOR, SENTINELS, NEWS, SHARED = re.findall(
    r"^ACL (SETUSER .*)$", (ROOT / "docs" / "redis.md").read_text(), re.MULTILINE
)
HUNDRED = Quota(0.001, 100)
POOR = Quota(1000.0, 10)


def called_by(*names: str) -> set[str]:
    """The commands in these files of lua/."""
    texts = [(ROOT / "lua" / f"{name}.lua").read_text() for name in names]
    return {word.lower() for text in texts for word in re.findall(r"\bp?call\('(\w+)'", text)}


OF_THE_SCRIPTS = called_by("start", "bucket", "spend", "sweep", "refill", "take", "write", "give_back", "peek")


def test_a_shared_limiter_needs_its_rights_and_those_of_a_limiter() -> None:
    assert called_by("lend") | {"subscribe"} <= {*rights(SERVER), *rights(SHARED)}
    assert set(rights(SHARED)) == {"publish", "subscribe"}


AnyStore = RedisStore | BlockingStore


def rights(rule: str) -> list[str]:
    """The commands that a rule grants."""
    return [word.removeprefix("+") for word in rule.split() if word.startswith("+")]


def allow(one: Node, *rules: str) -> None:
    for rule in rules:
        one.ask("ACL", *rule.split())


def forbid(one: Node, *commands: str) -> None:
    one.ask("ACL", "SETUSER", "limiter", *(f"-{each}" for each in commands))


def named(url: str, options: str = "") -> str:
    return url.replace("://", "://limiter:password@") + options


@contextmanager
def stores(url: str) -> Iterator[list[AnyStore]]:
    """One for each API."""
    made: list[AnyStore] = [
        RedisStore.from_url(url, connect_timeout=30.0, deadline=30.0),
        BlockingStore(AsyncRedisStore.from_url(url, connect_timeout=30.0, deadline=30.0)),
    ]
    try:
        yield made
    finally:
        for each in made:
            each.close()


def use(store: AnyStore, key: str, forget: Callable[[], object]) -> None:
    """Every operation of a limiter, each of them on servers that have lost all scripts."""
    forget()
    store.probe(key)
    forget()
    assert store.take(key, HUNDRED, Ask("a", 1, 50, 50, 50, round_trip=2.0)).granted == 50
    forget()
    assert store.give_back(key, HUNDRED, GiveBack("a", 2, tokens=20, held=30)) == 20
    forget()
    assert Level(*store.peek(key, HUNDRED)[:3]) == Level(70, 30, 1)
    if isinstance(store, RedisStore):
        forget()
        found = store.take_many([(f"{key}-{n}", HUNDRED, Ask("a", 1, 1, 1, 1)) for n in range(3)])
        assert [getattr(each, "granted", each) for each in found] == [1, 1, 1]


def called(one: Node) -> set[str]:
    """The commands that the scripts have made the server carry out."""
    return {name.removeprefix("cmdstat_") for name in one.info("INFO", "commandstats")} & OF_THE_SCRIPTS


def use_all_commands(store: AnyStore, one: Node) -> None:
    """Instances come and go at a bucket too poor for one of them, until the scripts have called all commands."""
    store.take("poor", POOR, Ask("gone", 1, 1, 1, 1))
    asks = iter(range(1, 1_000_000))

    def is_done() -> bool:
        for instance in ("a", "b"):
            store.take("poor", POOR, Ask(instance, next(asks), 10, 10, 10))
        return called(one) == OF_THE_SCRIPTS

    await_fact(is_done, "a bucket that reserves, looks at all instances and forgets one")


def do_everything(store: AnyStore, one: Node) -> None:
    use(store, "everything", lambda: one.ask("SCRIPT", "FLUSH"))
    use_all_commands(store, one)


def test_the_rule_names_the_commands_of_the_scripts_and_no_others() -> None:
    of_callers = {"evalsha", "script|load"}
    assert set(rights(SERVER)) == OF_THE_SCRIPTS | of_callers


def test_the_rule_stands_in_one_place() -> None:
    texts = [path.read_text() for path in (ROOT / "docs").glob("*.md")] + [(ROOT / "README.md").read_text()]
    assert sum("+evalsha" in line and "+pexpire" in line for text in texts for line in text.splitlines()) == 1
    assert sum("+evalsha" in line and "+xadd" in line for text in texts for line in text.splitlines()) == 1


# One server


@pytest.fixture(scope="module", params=[valkey_binary, redis_binary])
def server(request: pytest.FixtureRequest) -> Iterator[Node]:
    with node(request.param()) as one:
        yield one


@pytest.fixture
def one(server: Node) -> Node:
    """A server that nobody has used, with the user of the document."""
    server.ask("FLUSHALL")
    server.ask("CONFIG", "RESETSTAT")
    allow(server, "SETUSER limiter reset", SERVER)
    return server


@pytest.mark.parametrize("options", ["", "?protocol=3"])
def test_a_user_of_one_server_can_do_everything(one: Node, options: str) -> None:
    with stores(named(one.url, options)) as both:
        for n, store in enumerate(both):
            use(store, f"k{n}", lambda: one.ask("SCRIPT", "FLUSH"))
        do_everything(both[0], one)


@pytest.mark.parametrize("command", sorted(rights(SERVER)))
def test_a_user_of_one_server_needs_every_right(one: Node, command: str) -> None:
    forbid(one, command)
    with stores(named(one.url)) as both, pytest.raises(StoreUnavailable, match=r"NOPERM.*docs/redis\.md"):
        do_everything(both[0], one)


@pytest.mark.parametrize("command", ["evalsha", "script|load"])
def test_a_task_needs_these_rights_too(one: Node, command: str) -> None:
    forbid(one, command)
    with stores(named(one.url)) as both, pytest.raises(StoreUnavailable, match=r"NOPERM.*docs/redis\.md"):
        use(both[1], "k", lambda: one.ask("SCRIPT", "FLUSH"))


def test_the_rule_of_operators_names_the_commands_of_their_script_and_what_they_read() -> None:
    of_readers = {"evalsha", "script|load", "hget", "hgetall", "time", "xrevrange"}
    assert set(rights(OPERATOR)) == called_by("change") | of_readers


@pytest.fixture
def operator(one: Node) -> Iterator[RedisStore]:
    """An operator with the rights of the document."""
    allow(one, "SETUSER operator reset", OPERATOR)
    store = RedisStore.from_url(named(one.url).replace("limiter:", "operator:"), deadline=30.0)
    yield store
    store.close()


def test_an_operator_sets_what_a_limiter_may_read_and_not_change(one: Node, operator: RedisStore) -> None:
    with stores(named(one.url)) as both:
        assert operator.rules.change(Change(0, {"ann": '{"quota": "5/s"}'}))[0]
        assert len(operator.rules.log(9)) == 1
        for n, store in enumerate(both):
            grant = store.take(f"k{n}", HUNDRED, Ask("a", 1, 5, 5, 5))
            published = rules_of(store).read(0)
            assert grant.rules == published.revision == operator.rules.read(0).revision
            with pytest.raises(StoreUnavailable, match=r"NOPERM|No permission|no permission"):
                rules_of(store).change(Change(published.revision, {"ann": ""}))
        assert (operator.rules.read(0).fields or {})["rule:ann"] == '{"quota": "5/s"}'
    with pytest.raises(StoreUnavailable):
        operator.take("k0", HUNDRED, Ask("a", 2, 5, 5, 5))


def test_an_operator_reads_what_limiters_obey_and_the_store_has_lost(one: Node, operator: RedisStore) -> None:
    with stores(named(one.url)) as both:
        for revision, store in enumerate(both, 7):
            rules_of(store).remind(Overrides(revision, [Override("ann", HUNDRED)]))
            found = operator.rules.obeyed()
            assert (found.revision, [each.name for each in found]) == (revision, ["ann"])


def test_an_operator_fills_buckets_by_rights_of_their_own(one: Node, operator: RedisStore) -> None:
    with stores(named(one.url)) as both:
        assert both[0].take("k", HUNDRED, Ask("a", 1, 5, 5, 5)).granted == 5
        with pytest.raises(StoreUnavailable):
            operator.reset("k", forget=False)
        allow(one, FILLS)
        assert operator.reset("k", forget=True) is not None
        operator.rules.note("k", "95", "cleared", "ann", "because")
        assert [each.new for each in operator.rules.log(9)] == ["cleared"]


@pytest.mark.parametrize("command", sorted(rights(OPERATOR)))
def test_an_operator_needs_every_right(one: Node, operator: RedisStore, command: str) -> None:
    allow(one, f"SETUSER operator -{command}")
    one.ask("SCRIPT", "FLUSH")

    def work() -> None:
        operator.rules.change(Change(0, {"ann": "text"}))
        operator.rules.change(Change(operator.rules.read(0).revision, {"ann": ""}))
        operator.rules.log(9)

    with pytest.raises(StoreUnavailable):
        work()


def test_a_limiter_that_may_not_read_the_rules_serves_by_its_code(one: Node) -> None:
    allow(one, "SETUSER limiter reset", SERVER.replace(" %R~{batchlimit:}rules", ""))
    with stores(named(one.url)) as both:
        for n, store in enumerate(both):
            grant = store.take(f"k{n}", HUNDRED, Ask("a", 1, 5, 5, 5))
            assert (grant.granted, grant.rules) == (5, UNTOLD)


def test_a_user_reaches_no_keys_but_those_of_the_prefix(one: Node) -> None:
    theirs = RedisStore.from_url(named(one.url), prefix="theirs", deadline=30.0)
    with pytest.raises(StoreUnavailable, match=r"NOPERM.*docs/redis\.md"):
        theirs.peek("k", HUNDRED)
    theirs.close()


NEEDED = {
    "select": "?db=1",
    "client|setname": "?client_name=limiter",
    "ping": "?health_check_interval=1",
}


def make_due(store: AnyStore) -> None:
    """Let the connections that it has be due for a health check, as after a while."""
    inner: Any = getattr(store, "_inner", store)
    for each in (
        getattr(inner._transport, "_made", None) or inner._transport.client.connection_pool._available_connections
    ):
        each.next_health_check = -1.0


def use_twice(store: AnyStore) -> None:
    store.peek("k", HUNDRED)
    make_due(store)
    store.peek("k", HUNDRED)


def test_the_rule_for_options_names_a_right_for_each() -> None:
    assert set(rights(OPTIONS)) == set(NEEDED)


@pytest.mark.parametrize("command", NEEDED)
@pytest.mark.parametrize("api", [0, 1], ids=["threads", "tasks"])
def test_an_option_needs_its_right(one: Node, command: str, api: int) -> None:
    url = named(one.url.removesuffix("/0"), NEEDED[command])
    with stores(url) as both, pytest.raises(StoreUnavailable, match="NOPERM"):
        use_twice(both[api])
    allow(one, OPTIONS)
    with stores(url) as both:
        use(both[api], "k", lambda: one.ask("SCRIPT", "FLUSH"))
        use_twice(both[api])


# A cluster


@pytest.fixture(scope="module")
def both_nodes() -> Iterator[Cluster]:
    with cluster(valkey_binary(), 2) as whole:
        yield whole


@pytest.fixture
def whole(both_nodes: Cluster) -> Cluster:
    """A cluster that nobody has used, with the user of the document at each node."""
    for each in both_nodes.nodes:
        each.ask("FLUSHALL")
        allow(each, "SETUSER limiter reset", SERVER, CLUSTER)
    return both_nodes


def use_cluster(whole: Cluster, store: AnyStore, key: str) -> None:
    """All operations at a key of each node, and a take at a key that is just moving."""
    for number in range(8):
        use(store, f"{key}-{number}", lambda: [each.ask("SCRIPT", "FLUSH") for each in whole.nodes])
    name = "{batchlimit:" + f"{key}-moving" + "}"
    source = whole.owner(name)
    target = next(each for each in whole.nodes if each is not source)
    whole.begin_move(name, source, target)
    try:
        store.take(f"{key}-moving", HUNDRED, Ask("a", 1, 1, 1, 1))
    finally:
        for each in (source, target):
            each.ask("CLUSTER", "SETSLOT", whole.slot(name), "STABLE")


def test_a_user_of_a_cluster_can_do_everything(whole: Cluster) -> None:
    with stores(named(whole.url)) as both:
        for n, store in enumerate(both):
            use_cluster(whole, store, f"k{n}")


@pytest.mark.parametrize("command", sorted(rights(CLUSTER)))
@pytest.mark.parametrize("api", [0, 1], ids=["threads", "tasks"])
def test_a_user_of_a_cluster_needs_every_right(whole: Cluster, command: str, api: int) -> None:
    for each in whole.nodes:
        forbid(each, command)
    with stores(named(whole.url)) as both, pytest.raises(StoreUnavailable):
        use_cluster(whole, both[api], "k")


# Sentinels


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with sentinel(valkey_binary()) as found:
        for each in found.nodes:
            allow(each, SERVER)
        yield found


def by_sentinels(found: Watched) -> str:
    return named(found.url, "?sentinel_username=limiter&sentinel_password=password")


def test_a_user_of_sentinels_can_do_everything(watched: Watched) -> None:
    for each in watched.sentinels:
        allow(each, "SETUSER limiter reset", SENTINELS)
    with stores(by_sentinels(watched)) as both:
        for n, store in enumerate(both):
            use(store, f"k{n}", lambda: watched.primary.ask("SCRIPT", "FLUSH"))


def test_a_user_of_sentinels_hears_of_a_failover_by_one_right_more(watched: Watched) -> None:
    one = watched.sentinels[0]
    allow(one, "SETUSER limiter reset", SENTINELS)
    with redis.Redis.from_url(named(one.url)) as client, client.pubsub() as heard:
        heard.subscribe(PUBLISHED)
        with pytest.raises(redis.exceptions.NoPermissionError):
            heard.get_message(timeout=30.0)
        allow(one, NEWS)
        heard.subscribe(PUBLISHED)
        message = heard.get_message(timeout=30.0)
    assert message is not None
    assert message["type"] == "subscribe"


@pytest.mark.parametrize("command", sorted(rights(SENTINELS)))
def test_a_user_of_sentinels_needs_every_right(watched: Watched, command: str) -> None:
    for each in watched.sentinels:
        allow(each, "SETUSER limiter reset", SENTINELS)
        forbid(each, command)
    with stores(by_sentinels(watched)) as both:
        for store in both:
            with pytest.raises(StoreUnavailable, match=r"NOPERM.*docs/redis\.md"):
                store.peek("k", HUNDRED)

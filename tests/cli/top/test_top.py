"""`batchlimit top` on real servers, and in a real terminal."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from batchlimit import Quota
from batchlimit.bucket.messages import Ask
from batchlimit.cli.top.sampler import Sampler
from batchlimit.stores import RedisStore
from tests.cli.conftest import Run, typed_at
from tests.cli.terminal import Terminal
from tests.nodes import Node, node
from tests.servers import Server, Servers, valkey_binary
from tests.stores.test_rights import LOOKS, OPERATOR

SLOW = Quota(0.001, 1000)


def use(store: RedisStore, key: str, tokens: int, refused: int = 0, instance: str = "one") -> None:
    """Have an instance use tokens, and tell of refusals."""
    ask = Ask(
        instance,
        time.monotonic_ns(),
        tokens,
        tokens,
        tokens,
        round_trip=2.0,
        refused=refused,
        shadow_refused=2 * refused,
    )
    assert store.take(key, SLOW, ask).granted == tokens
    store.take(key, SLOW, ask._replace(seq=ask.seq + 1, need=0, queued=0, want=0, refused=0, shadow_refused=0))


def test_a_sample_tells_of_each_key_what_is_used_and_refused(run: Run, valkey_store: RedisStore) -> None:
    use(valkey_store, "search:ann", 300, refused=7)
    use(valkey_store, "search:bob", 100)
    use(valkey_store, "search:bob", 50, instance="two")
    done = run("top", "-o", "json", "--interval", "0.1", "--sort", "level")
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert [(each["key"], each["level"]) for each in told["keys"]] == [("search:ann", 0.7), ("search:bob", 0.85)]
    assert told["looked"]["calls"] > 0
    assert (told["looked"]["is_guessed"], told["looked"]["part"]) == (False, 1.0)


def test_a_pipe_gets_one_table(run: Run, valkey_store: RedisStore) -> None:
    use(valkey_store, "search:ann", 300)
    done = run("top", "--interval", "0.1")
    assert (done.exit_code, "search:ann" in done.stdout, "ms of the server" in done.stderr) == (0, True, True)
    assert "or the filter is another one" in run("top", "--once", "--filter", "export", "--interval", "0.1").stderr


def test_a_look_keeps_to_its_budget_and_goes_on_later(valkey: Server, valkey_store: RedisStore, prefix: str) -> None:
    with valkey.client() as client:
        pipeline = client.pipeline(transaction=False)
        for each in range(2000):
            pipeline.hset(f"{{{prefix}:{each}}}", "quota", "not a bucket")
        pipeline.execute()
    for each in range(20):
        use(valkey_store, f"key {each}", 10)
    sampler, found, looks = Sampler(valkey_store, prefix, budget=0.0), set[str](), 0
    while len(found) < 20:
        look = sampler.look()
        assert look.cost.calls <= 2 * (1 + 100 + 1 + 100), "one SCAN, what it found, and what the server counted"
        found |= {sample.key for sample in look.samples}
        looks += 1
    assert looks > 1


def test_watched_keys_are_read_at_every_look_or_gone(valkey: Server, valkey_store: RedisStore, prefix: str) -> None:
    use(valkey_store, "ann", 10)
    use(valkey_store, "bob", 10)
    sampler = Sampler(valkey_store, prefix)
    assert {each.key for each in sampler.look().samples} == {"ann", "bob"}
    with valkey.client() as client:
        client.delete(f"{{{prefix}:bob}}")
    look = sampler.look(["ann", "bob"])
    assert ([each.key for each in look.samples], look.gone) == (["ann"], ["bob"])


def test_other_things_of_that_name_are_no_buckets(valkey: Server, valkey_store: RedisStore, prefix: str) -> None:
    with valkey.client() as client:
        client.set(f"{{{prefix}:text}}", "x")
        client.hset(f"{{{prefix}:other}}", "a", "b")
    use(valkey_store, "ann", 10)
    assert [each.key for each in Sampler(valkey_store, prefix).look().samples] == ["ann"]


def test_a_prefix_with_wildcards_matches_itself_alone(valkey: Server) -> None:
    with valkey.client() as client:
        for prefix in ("odd*[x]", "odd-x"):
            use(RedisStore(client, prefix=prefix), "ann", 10)
        assert len(Sampler(RedisStore(client, prefix="odd*[x]"), "odd*[x]").look().samples) == 1
        client.delete("{odd*[x]:ann}", "{odd-x:ann}")


def test_a_cluster_is_looked_at_node_by_node(servers: Servers, prefix: str) -> None:
    url = servers.get("cluster").url
    store = RedisStore.from_url(url, prefix=prefix)
    for each in range(12):
        use(store, f"key {each}", 10)
    store.close()
    told = json.loads(typed_at(url, prefix)("top", "-o", "json", "--interval", "0.1").stdout)
    assert sorted(each["key"] for each in told["keys"]) == sorted(f"key {each}" for each in range(12))


def test_a_terminal_shows_a_screen_that_obeys_keys(environment: dict[str, str], valkey_store: RedisStore) -> None:
    use(valkey_store, "search:ann", 300)
    use(valkey_store, "export:bob", 100)
    with Terminal(environment, "top", "--interval", "0.1") as terminal:
        terminal.await_text("search:ann", "export:bob", "ms of the server", "USED/S▼")
        terminal.press("s")
        terminal.await_text("REFUSED/S▼")
        terminal.press("/export\r")
        terminal.await_text("filter: export (Escape")
        assert "search:ann" not in terminal.next_screen("filter: export (Escape")
        terminal.press("q")
        assert terminal.status() == 0


def test_a_sample_at_a_narrow_terminal_has_a_row_per_key(environment: dict[str, str], valkey_store: RedisStore) -> None:
    key = "search:a-tenant-with-a-long-name@example.org"
    use(valkey_store, key, 300)
    with Terminal(environment, "top", "--once", "--interval", "0.1", columns=80) as terminal:
        terminal.await_text("USED/S▼", key[:25], "…", "ms of the server")
        assert terminal.status() == 0


@pytest.mark.parametrize("columns", [40, 80, 100])
def test_a_narrow_terminal_shows_keys_and_rates(environment: Any, valkey_store: RedisStore, columns: int) -> None:
    use(valkey_store, "user:1234567", 300, refused=7)
    with Terminal(environment, "top", "--interval", "0.1", columns=columns) as terminal:
        terminal.await_text("user:1234567", "USED/S▼", "REFUSED/S")


@pytest.fixture
def operator() -> Iterator[Node]:
    """A server with a user who has the rights of an operator by docs/redis.md."""
    with node(valkey_binary()) as one:
        for rule in ("SETUSER operator reset", OPERATOR, LOOKS):
            one.ask("ACL", *rule.split())
        yield one


@pytest.mark.parametrize(
    ("forbidden", "status", "is_guessed"), [(None, 0, False), ("info", 0, True), ("scan", 3, None)]
)
def test_a_user_needs_documented_rights(operator: Node, forbidden: Any, status: int, is_guessed: Any) -> None:
    if forbidden:
        operator.ask("ACL", "SETUSER", "operator", f"-{forbidden}")
    url = operator.url.replace("://", "://operator:password@")
    done = typed_at(url, "batchlimit")("top", "-o", "json", "--interval", "0.1")
    assert done.exit_code == status
    assert is_guessed is None or json.loads(done.stdout)["looked"]["is_guessed"] == is_guessed

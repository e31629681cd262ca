"""`batchlimit doctor` on real servers, sound and unsound ones."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import yaml

from batchlimit.cli import findings
from batchlimit.cli.doctor import _NEEDED, _tried
from tests.cli.conftest import Run, typed_at
from tests.depth import only_deep
from tests.nodes import Node, await_fact, node
from tests.servers import Server, Servers, any_binary, valkey_binary
from tests.stores.test_rights import CLUSTER_OPERATOR, DOCTOR, LOOKS, OF_THE_SCRIPTS, OPERATOR, SERVER, rights
from tests.topologies import Cluster, cluster

CHECKS = [
    *("client-version", "reachable", "scripts", "overrides", "rights", "round-trip", "clock", "server-version"),
    *("topology", "role", "eviction", "memory", "expiry"),
]
PATIENT = "--deadline", "100"


@pytest.fixture
def one() -> Iterator[Node]:
    """A server that a test may spoil."""
    with node(any_binary()) as one:
        yield one


def examined(url: str, *words: str, prefix: str = "batchlimit") -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status, and what each check found."""
    done = typed_at(url, prefix)("doctor", "-o", "json", *PATIENT, *words)
    assert "Traceback" not in done.output
    return done.exit_code, {each["check"]: each for each in json.loads(done.stdout)}


def test_a_sound_server_passes_every_check(server: Server, prefix: str) -> None:
    status, found = examined(server.url, prefix=prefix)
    assert (status, list(found)) == (0, CHECKS)
    allowed = {"rights"} if server.name == "redis-6.2" else set()
    assert {name for name, each in found.items() if each["verdict"] != "ok"} == allowed, "6.2 cannot try rights"


def test_each_node_of_a_cluster_is_examined(servers: Servers, prefix: str) -> None:
    done = typed_at(servers.get("cluster").url, prefix)("doctor", "-o", "yaml", *PATIENT)
    rows = yaml.safe_load(done.stdout)
    assert (done.exit_code, {each["verdict"] for each in rows}) == (0, {"ok"})
    assert len({each["server"] for each in rows if each["check"] == "memory"}) == 3
    assert [each["found"] for each in rows if each["check"] == "slots"] == ["state ok, 16384 of 16384 slots served"]


def test_a_table_is_for_people(run: Run) -> None:
    done = run("doctor", *PATIENT)
    assert (done.exit_code, "noeviction" in done.stdout, "0 fail" in done.stderr) == (0, True, True)


def test_a_server_that_is_away_is_the_only_finding_and_a_status_of_its_own() -> None:
    status, found = examined("redis://:secret@localhost:1/0")
    assert (status, list(found), found["reachable"]["verdict"]) == (3, CHECKS[:2], "fail")
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    ("spoil", "check", "verdict"),
    [
        ([("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")], "eviction", "warning"),
        ([("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")], "eviction", "fail"),
        ([("CONFIG", "SET", "maxmemory", "100kb")], "memory", "fail"),
        ([("CONFIG", "SET", "maxmemory", "100kb")], "scripts", "fail"),
        ([("HSET", "{batchlimit:ann}", "quota", "x")], "expiry", "warning"),
        ([("HSET", "{batchlimit:}rules", "form", "99", "revision", "7")], "overrides", "fail"),
        ([("SET", "{batchlimit:}rules", "text")], "overrides", "fail"),
        ([("REPLICAOF", "localhost", "1")], "role", "fail"),
    ],
    ids=str,
)
def test_what_is_wrong_is_found(one: Node, spoil: list[tuple[str, ...]], check: str, verdict: str) -> None:
    for command in spoil:
        one.ask(*command)
    status, found = examined(one.url)
    assert (found[check]["verdict"], bool(found[check]["remedy"])) == (verdict, True)
    fails = any(each["verdict"] == "fail" for each in found.values())
    assert status == int(fails)
    assert examined(one.url, "--strict")[0] == 1


def test_a_deadline_that_is_too_short_is_found(one: Node) -> None:
    done = typed_at(one.url, "batchlimit")("doctor", "-o", "json", "--deadline", "0.001")
    (trip,) = [each for each in json.loads(done.stdout) if each["check"] == "round-trip"]
    assert "deadline 1 ms" in trip["found"]


def test_a_url_that_is_mistaken_about_tls_is_found(servers: Servers, one: Node) -> None:
    status, found = examined(one.url.replace("redis:", "rediss:") + "?socket_timeout=0.2&socket_connect_timeout=0.2")
    assert (status, "use redis in place of rediss" in found["reachable"]["remedy"]) == (3, True)
    encrypted = servers.get("tls").url.partition("?")[0]
    status, found = examined(encrypted.replace("rediss", "redis"))
    assert (status, "use rediss in place of redis" in found["reachable"]["remedy"]) == (3, True)
    assert "certificate" in examined(encrypted)[1]["reachable"]["found"]


@only_deep
def test_a_node_of_a_cluster_that_failed_is_found_and_the_others_are_examined() -> None:
    with cluster(valkey_binary()) as whole:
        whole.nodes[2].kill()
        others = whole.nodes[:2]
        await_fact(lambda: all("fail" in str(each.ask("CLUSTER", "NODES")) for each in others), "a node that is missed")
        done = typed_at(whole.url, "batchlimit")("doctor", "-o", "json", *PATIENT)
    rows = json.loads(done.stdout)
    (nodes,) = [each for each in rows if each["check"] == "nodes"]
    assert (done.exit_code, nodes["verdict"], whole.nodes[2].name in nodes["found"]) == (1, "fail", True)
    assert len({each["server"] for each in rows if each["check"] == "memory"}) == 2


def test_what_a_server_does_not_tell_is_not_well() -> None:
    found = _tried("memory", lambda: findings.memory({"used_memory": 1}))
    assert (found.verdict, found.found) == ("warning", "could not be checked: INFO does not tell maxmemory")


def test_a_node_of_a_cluster_that_is_asked_as_one_server_is_found() -> None:
    with node(any_binary(), "--cluster-enabled", "yes") as one:
        status, found = examined(one.url)
        assert (status, found["topology"]["verdict"]) == (1, "fail")


def test_rights_are_tried_without_writing(one: Node) -> None:
    for rule in (SERVER, "SETUSER limiter +acl|whoami +acl|dryrun +info +scan +pttl"):
        one.ask("ACL", *rule.split())
    url = one.url.replace("://", "://limiter:password@")
    assert examined(url)[1]["rights"]["verdict"] == "ok"
    one.ask("ACL", "SETUSER", "limiter", "-hdel", "-pexpire")
    status, found = examined(url)
    assert (status, found["rights"]["found"]) == (1, "the user limiter may not use hdel, pexpire")


def test_what_a_user_may_not_ask_is_a_warning(one: Node) -> None:
    one.ask("ACL", *SERVER.split())
    status, found = examined(one.url.replace("://", "://limiter:password@"))
    assert status == 0
    assert {name for name, each in found.items() if each["verdict"] == "warning"} == {"rights", "info", "expiry"}


def test_an_operator_with_the_rights_that_are_documented_is_told_of_every_check(one: Node) -> None:
    for rule in ("SETUSER operator reset", OPERATOR, LOOKS, DOCTOR):
        one.ask("ACL", *rule.split())
    status, found = examined(one.url.replace("://", "://operator:password@"))
    assert (status, {name: each["found"] for name, each in found.items() if each["verdict"] != "ok"}) == (0, {})


@pytest.fixture(scope="module")
def whole() -> Iterator[Cluster]:
    with cluster(valkey_binary(), 2) as whole:
        yield whole


def as_operator(whole: Cluster, forbidden: str = "") -> dict[str, str]:
    """What the operator of the document is told of a cluster that is not well."""
    for each in whole.nodes:
        for rule in ("SETUSER operator reset", OPERATOR, LOOKS, DOCTOR, CLUSTER_OPERATOR):
            each.ask("ACL", *rule.split())
        if forbidden:
            each.ask("ACL", "SETUSER", "operator", f"-{forbidden}")
    done = typed_at(whole.url.replace("://", "://operator:password@"), "batchlimit")("doctor", "-o", "json", *PATIENT)
    return {each["check"]: each["found"] for each in json.loads(done.stdout) if each["verdict"] != "ok"}


def test_an_operator_of_a_cluster_is_told_of_every_check(whole: Cluster) -> None:
    assert as_operator(whole) == {}


@pytest.mark.parametrize("command", ["cluster|info", "cluster|nodes"])
def test_what_an_operator_of_a_cluster_may_not_ask_is_a_warning(whole: Cluster, command: str) -> None:
    assert command in rights(CLUSTER_OPERATOR)
    (found,) = as_operator(whole, command).values()
    assert "could not be checked" in found


def test_a_wrong_password_is_found(one: Node) -> None:
    one.ask("CONFIG", "SET", "requirepass", "right")
    status, found = examined(one.url.replace("://", "://:wrong@"))
    assert (status, "wrong@" in str(found), "WRONGPASS" in found["reachable"]["found"]) == (3, False, True)


def test_the_rights_that_are_tried_are_those_of_the_scripts() -> None:
    assert {each.lower() for each in _NEEDED} == OF_THE_SCRIPTS | {"evalsha", "script"}


GONE, SOON = -2, 10_000
"""What PTTL says of a key that has ended, and at the most of one that ends soon (ms)."""


def test_looking_leaves_nothing_behind_but_what_ends_by_itself(one: Node) -> None:
    examined(one.url)
    with redis.Redis.from_url(one.url) as client:
        left = [client.pttl(key) for key in client.scan_iter()]
    assert all(each == GONE or 0 <= each <= SOON for each in left)

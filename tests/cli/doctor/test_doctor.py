"""`batchlimit doctor` on real servers, sound and unsound ones."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import yaml

from batchlimit.cli import findings
from batchlimit.cli.doctor import _NEEDED, _tried
from batchlimit.cli.findings import Finding
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
    assert check != "overrides" or "delete {batchlimit:}rules" in found[check]["remedy"]
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


def test_overrides_that_another_node_has_are_not_to_be_deleted(whole: Cluster) -> None:
    other = next(each for each in whole.nodes if each is not whole.owner("{batchlimit:}rules"))
    _, found = examined(other.url)
    assert "MOVED" in found["overrides"]["found"]
    assert "delete" not in found["overrides"]["remedy"]


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


OK, WARNING, FAIL = "ok", "warning", "fail"
MIB = 2**20
ALONE = {"role": "master", "connected_slaves": 0}
A = "a 10.0.0.1:1@11 myself,master - 0 0 1 connected 0-8000"
B = "b 10.0.0.2:1@11 master - 0 0 2 connected 8001-16383"
OF_A = "c 10.0.0.3:1@11 slave a 0 0 1 connected"
VALKEY = {"redis_version": "7.2.4", "valkey_version": "9.1.2"}


@pytest.mark.parametrize(
    ("finding", "verdict", "found"),
    [
        (lambda: findings.round_trip([0.001, 0.002, 0.001], 0.05), OK, "1.00 ms, slowest of 3 2.00 ms; deadline 50 ms"),
        (lambda: findings.round_trip([0.011], 0.05), WARNING, "11.00 ms"),
        (lambda: findings.round_trip([0.001, 0.06, 0.001], 0.05), WARNING, "slowest of 3 60.00 ms"),
        (lambda: findings.round_trip([0.05], 0.05), FAIL, "50.00 ms"),
        (lambda: findings.clock(0.9, 0.0), OK, "0.900 s ahead"),
        (lambda: findings.clock(-1.2, 0.1), WARNING, "1.200 s behind"),
        (lambda: findings.clock(1.2, 0.3), OK, "1.200 s ahead"),
        (lambda: findings.role(ALONE | {"connected_slaves": 2}, by_sentinel=True), OK, "primary, 2 replicas"),
        (lambda: findings.role(ALONE, by_sentinel=True), WARNING, "primary, 0 replicas"),
        (lambda: findings.role(ALONE, by_sentinel=False), OK, "primary, 0 replicas"),
        (lambda: findings.role({"role": "slave"}, by_sentinel=False), FAIL, "a slave"),
        (lambda: findings.nodes([A, B]), OK, "2, of which 2 are primaries with slots"),
        (lambda: findings.nodes([A, B, OF_A]), WARNING, "without a replica: 10.0.0.2:1"),
        (lambda: findings.nodes([A, B, OF_A, OF_A.replace(" a ", " b ")]), OK, "4, of which 2"),
        (lambda: findings.nodes([A, B.replace("master", "master,fail")]), FAIL, "failed: 10.0.0.2:1"),
        (lambda: findings.nodes([A, OF_A.replace("slave", "slave,fail?")]), WARNING, "failed: 10.0.0.3:1"),
        (lambda: findings.eviction({"maxmemory_policy": "noeviction", "maxmemory": 9}), OK, "noeviction"),
        (lambda: findings.eviction({"maxmemory_policy": "allkeys-lru", "maxmemory": 9}), FAIL, "allkeys-lru"),
        (lambda: findings.eviction({"maxmemory_policy": "volatile-ttl", "maxmemory": 0}), WARNING, "nothing is"),
        (lambda: findings.memory({"used_memory": 3 * MIB, "maxmemory": 0}), OK, "3 MiB used, no maxmemory"),
        (lambda: findings.memory({"used_memory": 79 * MIB, "maxmemory": 100 * MIB}), OK, "79 MiB of 100 MiB"),
        (lambda: findings.memory({"used_memory": 80 * MIB, "maxmemory": 100 * MIB}), WARNING, "80 MiB"),
        (lambda: findings.memory({"used_memory": 95 * MIB, "maxmemory": 100 * MIB}), FAIL, "95 MiB"),
        (lambda: findings.version({"redis_version": "6.2.0"}, is_cluster=False), OK, "Redis 6.2.0"),
        (lambda: findings.version({"redis_version": "6.0.16"}, is_cluster=False), FAIL, "Redis 6.0.16"),
        (lambda: findings.version({"redis_version": "6.2.14"}, is_cluster=True), FAIL, "Redis 6.2.14"),
        (lambda: findings.version(VALKEY, is_cluster=True), OK, "Valkey 9.1.2"),
        (lambda: findings.client("1.0", "5.2.0"), OK, "redis-py 5.2.0"),
        (lambda: findings.client("1.0", "5.1.9"), FAIL, "redis-py 5.1.9"),
        (lambda: findings.topology({"cluster_enabled": 1}, by_cluster=True), OK, "a cluster"),
        (lambda: findings.topology({"cluster_enabled": 1}, by_cluster=False), FAIL, "a node of a cluster"),
        (lambda: findings.topology({"cluster_enabled": 0}, by_cluster=False), OK, "one server"),
        (lambda: findings.slots({"cluster_state": "ok", "cluster_slots_ok": "16384"}), OK, "16384 of 16384"),
        (lambda: findings.slots({"cluster_state": "ok", "cluster_slots_ok": "16383"}), FAIL, "16383 of 16384"),
        (lambda: findings.slots({"cluster_state": "fail", "cluster_slots_ok": "16384"}), FAIL, "state fail"),
        (lambda: findings.rights("ann", []), OK, "the user ann may"),
        (lambda: findings.rights("ann", ["hdel", "time"]), FAIL, "may not use hdel, time"),
        (lambda: findings.expiry(0, []), OK, "no keys"),
        (lambda: findings.expiry(0, [], is_all=False), WARNING, "among those that were looked at"),
        (lambda: findings.expiry(9, []), OK, "all of 9"),
        (lambda: findings.expiry(9, ["{b:x}"]), WARNING, "1 of 9 keys never expire, such as {b:x}"),
    ],
)  # fmt: skip
def test_facts_are_judged(finding: Callable[[], Finding], verdict: str, found: str) -> None:
    one = finding()
    assert one.verdict == verdict
    assert found in one.found
    assert bool(one.remedy) == (verdict != OK), "what is not well has a remedy"

"""Facts in, findings out."""

from collections.abc import Callable

import pytest

from batchlimit.cli import findings
from batchlimit.cli.findings import Finding

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

"""Servers that are several, or want to be asked nicely: a cluster, sentinels, TLS. Small, fast, and each for itself."""

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from redis.crc import key_slot
from redis.exceptions import ResponseError

from tests.nodes import Node, await_fact, directory
from tests.ports import free_port
from tests.servers import Kinds, any_binary, redis_binary, valkey_binary
from tests.tls import tls

SLOTS = 16384
SERVICE = "primary"
_NEVER = 100_000
"""Milliseconds: no machine stalls for so long. Servers that are thought dead are replaced, or all refuse commands."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Primaries, each with an equal part of the slots, and then their replicas in the same order."""

    nodes: list[Node]
    primaries: int

    @property
    def url(self) -> str:
        """By any of its nodes."""
        return "redis+cluster://" + ",".join(each.name for each in self.nodes)

    def slot(self, name: str) -> int:
        """The slot of a key."""
        return int(key_slot(name.encode()))

    def owner(self, name: str) -> Node:
        """The node that had a key's slot at the start."""
        return self.nodes[self.slot(name) * self.primaries // SLOTS]

    def promote_replica(self, primary: Node) -> None:
        """Let the replica of a dead primary take over; the other nodes learn of it later."""
        others = [each for each in self.nodes if each is not primary]
        replica = next(each for each in others if each.info("INFO", "replication").get("master_port") == primary.port)
        replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")

    def move(self, name: str, source: Node, target: Node) -> None:
        """Move the key's slot with all its keys, as an operator does, up to the last step."""
        slot = self.slot(name)
        self.begin_move(name, source, target)
        self._migrate(slot, source, target)
        self.end_move(name, target)

    def begin_move(self, name: str, source: Node, target: Node) -> None:
        """From now on the source sends whoever asks for a key that it has not to the target (ASK)."""
        slot = self.slot(name)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", str(source.ask("CLUSTER", "MYID")))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", str(target.ask("CLUSTER", "MYID")))

    def end_move(self, name: str, target: Node) -> None:
        """From now on all others send whoever asks for the slot to the target (MOVED)."""
        slot, new = self.slot(name), str(target.ask("CLUSTER", "MYID"))
        primaries = [each for each in self.nodes if each.info("INFO", "replication")["role"] == "master"]
        for each in sorted(primaries, key=lambda each: each is not target):  # the target first: it must own it
            each.ask("CLUSTER", "SETSLOT", slot, "NODE", new)

    def lose(self, name: str) -> None:
        """Leave the key's slot without a node. A node that hears an old message of the owner believes it again."""
        owner, slot = self.owner(name), self.slot(name)
        nodes = sorted(self.nodes, key=lambda each: each is not owner)
        await_fact(lambda: sum(_gave_up(each, slot) for each in nodes) == 0, "a slot without a node")

    def _migrate(self, slot: int, source: Node, target: Node) -> None:
        keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000)
        assert isinstance(keys, list)
        if keys:
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)


@contextlib.contextmanager
def cluster(binary: str, nodes: int = 3, replicas: int = 0, *options: str) -> Iterator[Cluster]:
    """So many primaries, each with so many replicas (0 or 1); without a primary only its slots are away."""
    with directory() as folder, ExitStack() as stack:
        members = [_member(binary, folder, options) for _ in range(nodes * (1 + replicas))]
        for each in members:
            stack.callback(each.kill)
            each.start()
        whole = Cluster(members, nodes)
        _join(whole)
        yield whole


def _member(binary: str, folder: str, options: tuple[str, ...]) -> Node:
    bus = free_port()
    own = ["--cluster-enabled", "yes", "--cluster-config-file", f"{bus}.conf", "--cluster-port", str(bus)]
    own += ["--cluster-node-timeout", str(_NEVER), "--cluster-require-full-coverage", "no"]
    return Node(binary, folder, [*own, "--repl-diskless-sync-delay", "0", *options])


def _join(whole: Cluster) -> None:
    first, *others = whole.nodes
    for number, each in enumerate(whole.nodes):
        each.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        if number < whole.primaries:
            begin, end = (-(-SLOTS * at // whole.primaries) for at in (number, number + 1))
            each.ask("CLUSTER", "ADDSLOTSRANGE", begin, end - 1)
    for each in others:
        bus = _bus(each)
        first.ask("CLUSTER", "MEET", "127.0.0.1", each.port, bus)
    await_fact(lambda: all(_knows(each, len(whole.nodes)) for each in whole.nodes), "nodes that know each other")
    for primary, replica in zip(whole.nodes, whole.nodes[whole.primaries :], strict=False):
        replica.ask("CLUSTER", "REPLICATE", str(primary.ask("CLUSTER", "MYID")))
    for replica in whole.nodes[whole.primaries :]:
        await_fact(lambda each=replica: _in_step(each), "a replica in step")  # type: ignore[misc]
    await_fact(lambda: all(_covered(each) for each in whole.nodes), "a cluster that is whole")


def _gave_up(each: Node, slot: int) -> bool:
    try:
        each.ask("CLUSTER", "DELSLOTS", slot)
    except ResponseError:  # it knows of no owner
        return False
    return True


def _bus(each: Node) -> int:
    with each.client() as client:
        found: dict[str, str] = client.config_get("cluster-port")
    return int(found["cluster-port"])


def _knows(each: Node, others: int) -> bool:
    return int(each.info("CLUSTER", "INFO")["cluster_known_nodes"]) == others


def _covered(each: Node) -> bool:
    told = each.info("CLUSTER", "INFO")
    return told["cluster_state"] == "ok" and int(told["cluster_slots_ok"]) == SLOTS


def _in_step(replica: Node) -> bool:
    return replica.info("INFO", "replication").get("master_link_status") == "up"


@dataclass(frozen=True, slots=True)
class Watched:
    """A primary, a replica, and three sentinels that agree on which is which."""

    nodes: list[Node]
    sentinels: list[Node]
    password: str
    sentinel_password: str

    @property
    def url(self) -> str:
        """By any of the sentinels."""
        return self.url_by(0)

    def url_by(self, first: int) -> str:
        """By any of the sentinels, this one first."""
        user = f":{self.password}@" if self.password else ""
        option = f"?sentinel_password={self.sentinel_password}" if self.sentinel_password else ""
        names = [each.name for each in (*self.sentinels[first:], *self.sentinels[:first])]
        return f"redis+sentinel://{user}{','.join(names)}/{SERVICE}/0{option}"

    @property
    def primary(self) -> Node:
        """The primary, as the first sentinel knows it."""
        address = self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        assert isinstance(address, tuple | list)
        return next(each for each in self.nodes if each.port == int(address[1]))

    def fail_over(self, *how: str) -> None:
        """Let the replica take over, while the primary lives; return when all sentinels know."""
        before = self.primary
        await_fact(lambda: self._begun(*how), "a sentinel that finds the replica good enough")
        self.await_other_primary(before)

    def _begun(self, *how: str) -> bool:
        return bool(self.sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE, *how))

    def await_other_primary(self, before: Node) -> None:
        """Return when another node is the primary, knows it, and all sentinels know it."""
        other = next(each for each in self.nodes if each is not before)
        await_fact(lambda: other.info("INFO", "replication")["role"] == "master", "a replica that takes over")
        for sentinel in self.sentinels:
            await_fact(lambda each=sentinel: _names(each, other), "a sentinel that knows")  # type: ignore[misc]


@contextlib.contextmanager
def sentinel(
    binary: str, password: str = "", sentinel_password: str = "", down_after: int = _NEVER
) -> Iterator[Watched]:
    """A primary and a replica, which takes over on command, or after `down_after` ms without a word of the primary."""
    with directory() as folder, ExitStack() as stack:
        secret = ["--requirepass", password, "--masterauth", password] if password else []
        primary, replica = (Node(binary, folder, ["--repl-diskless-sync-delay", "0", *secret], password) for _ in "ab")
        for each in (primary, replica):
            stack.callback(each.kill)
            each.start()
        replica.ask("REPLICAOF", "127.0.0.1", primary.port)
        await_fact(lambda: _in_step(replica), "a replica in step")
        sentinels = [_sentinel(binary, folder, primary, sentinel_password, down_after) for _ in range(3)]
        for each in sentinels:
            stack.callback(each.kill)
            each.start()
        for each in sentinels:
            await_fact(lambda one=each: _agrees(one), "sentinels that know each other")  # type: ignore[misc]
        yield Watched([primary, replica], sentinels, password, sentinel_password)


def _sentinel(binary: str, folder: str, primary: Node, password: str = "", down_after: int = _NEVER) -> Node:
    path = f"{folder}/{free_port()}.conf"
    lines = [f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 2"]
    lines += [f"sentinel down-after-milliseconds {SERVICE} {down_after}", f"sentinel failover-timeout {SERVICE} 3000"]
    lines += [f"sentinel auth-pass {SERVICE} {primary.password}"] if primary.password else []
    lines += [f"requirepass {password}", f"sentinel sentinel-pass {password}"] if password else []
    with open(path, "w", encoding="utf-8") as configuration:
        configuration.write("\n".join(lines) + "\n")
    return Sentinel(binary, folder, path, password)


@dataclass(frozen=True, slots=True)
class Named:
    """Two servers that know nothing of each other, and a sentinel that calls one of them the primary."""

    nodes: list[Node]
    sentinel: Node

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.sentinel.name}/{SERVICE}/0"

    def name(self, primary: Node) -> None:
        """From now on this one is the primary; no other server learns of it, nor do those who listen."""
        self.sentinel.ask("SENTINEL", "REMOVE", SERVICE)
        self.sentinel.ask("SENTINEL", "MONITOR", SERVICE, "127.0.0.1", primary.port, 1)


@contextlib.contextmanager
def named(binary: str) -> Iterator[Named]:
    """The first of them is the primary."""
    with directory() as folder, ExitStack() as stack:
        nodes = [Node(binary, folder, []) for _ in range(2)]
        one = _sentinel(binary, folder, nodes[0])
        for each in (*nodes, one):
            stack.callback(each.kill)
            each.start()
        yield Named(nodes, one)


class Sentinel(Node):
    """A sentinel: its configuration is a file, for it writes there what it learns."""

    def __init__(self, binary: str, folder: str, path: str, password: str) -> None:
        super().__init__(binary, folder, [], password)
        self._command = [binary, path, "--sentinel", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", folder]


def _agrees(each: Node) -> bool:
    known = each.info("INFO", "sentinel")["master0"]
    return bool(known["sentinels"] == 3 and known["slaves"] == 1 and each.ask("SENTINEL", "CKQUORUM", SERVICE))


def _names(each: Node, primary: Node) -> bool:
    address = each.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
    return isinstance(address, tuple | list) and int(address[1]) == primary.port


@contextlib.contextmanager
def _cluster_url() -> Iterator[str]:
    with cluster(valkey_binary()) as whole:
        yield whole.url


@contextlib.contextmanager
def _sentinel_url() -> Iterator[str]:
    with sentinel(any_binary()) as watched:
        yield watched.url


@contextlib.contextmanager
def _tls_url() -> Iterator[str]:
    with tls(redis_binary()) as secured:
        yield secured.url


TOPOLOGIES: Kinds = {"cluster": _cluster_url, "sentinel": _sentinel_url, "tls": _tls_url}
"""What a store finds by its URL alone."""

"""The transport to a cluster, for threads: each call is one EVALSHA at the primary that has the bucket's slot."""

from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis.exceptions import MaxConnectionsError, NoScriptError, RedisClusterException, SlotNotCoveredError

from batchlimit.reentry import free, own_lock
from batchlimit.stores.client.address import client_address
from batchlimit.stores.client.scripts import digest, script
from batchlimit.stores.client.transport import Arguments

NOBODY = "no node"
"""The name of the part that holds all slots without a node."""


def is_lost(error: Exception) -> bool:
    """Whether a cluster client knows no living node any more. One slot without a node is not that."""
    return isinstance(error, RedisClusterException | MaxConnectionsError) and not isinstance(error, SlotNotCoveredError)


class ClusterTransport:
    """A cluster. The store's own client is made at the first call, because making it connects."""

    def __init__(self, address: str, connect: "Callable[[], redis.RedisCluster]") -> None:
        self.address = address
        self._connect = connect
        self._client: redis.RedisCluster | None = None
        self._lock = own_lock()  # held while the client is made: many callers make one

    @classmethod
    def of(cls, client: "redis.RedisCluster") -> "ClusterTransport":
        """Return the transport of a client that the caller made."""
        transport = cls(client_address(client), lambda: client)
        transport._client = client
        return transport

    def run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        client: Any = self._client or self._connected()
        try:
            return _run(client, name, bucket, arguments)
        except AttributeError as error:  # redis-py follows an ASK to a node that it does not know yet
            client.nodes_manager.initialize()
            raise RedisClusterException("a node of the cluster is new") from error

    def part(self, bucket: str) -> str:
        return slot_owner(self._client, bucket) if self._client else ""

    def reset_after(self, error: Exception) -> None:
        """Replace a client that knows no living node any more by one that begins with the nodes of the URL."""
        if is_lost(error):
            self._client = None

    def close(self) -> None:
        if (client := self._client) is not None:
            client.close()

    def _connected(self) -> "redis.RedisCluster":
        with free(self._lock):
            self._client = client = self._client or self._connect()
            return client


def slot_owner(client: Any, bucket: str) -> str:
    """Return host and port of the primary that has the bucket, as far as a cluster client knows.

    Slots without a node are a part of their own, so that their failures leave the others alone.
    """
    slots = client.nodes_manager.slots_cache
    nodes = slots.get(client.keyslot(bucket))
    return nodes[0].name if nodes else NOBODY if slots else ""


def _run(client: Any, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
    reply: Sequence[Any]
    try:
        reply = client.evalsha(digest(name), 1, bucket, *arguments)
    except NoScriptError:
        # EVAL goes where the EVALSHA went, and leaves the script there. redis-py would send SCRIPT LOAD to all known
        # primaries: one of them may be down, and the one that a slot moves to may not be among them.
        reply = client.eval(script(name), 1, bucket, *arguments)
    return reply

"""How a store talks to a cluster: each call is one EVALSHA at the primary that has the bucket's slot."""

from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis.exceptions import MaxConnectionsError, NoScriptError, RedisClusterException, SlotNotCoveredError

from batchlimit.reentry import free, own_lock
from batchlimit.stores.client.address import client_address
from batchlimit.stores.client.scripts import digest, script
from batchlimit.stores.client.transport import Arguments

NOBODY = "no node"
"""The part of the slots that no node of the cluster has."""


def is_lost(error: Exception) -> bool:
    """Whether a client of a cluster knows no living node any more: not, where one slot is nobody's."""
    return isinstance(error, RedisClusterException | MaxConnectionsError) and not isinstance(error, SlotNotCoveredError)


class ClusterTransport:
    """A Line to a cluster. A client of our own is made at the first call, for making one connects."""

    def __init__(self, address: str, connect: "Callable[[], redis.RedisCluster]") -> None:
        self.address = address
        self._connect = connect
        self._client: redis.RedisCluster | None = None
        self._lock = own_lock()  # held while the client is made, so that many callers make one

    @classmethod
    def of(cls, client: "redis.RedisCluster") -> "ClusterTransport":
        """Return a line by a client that is there."""
        line = cls(client_address(client), lambda: client)
        line._client = client
        return line

    def run(self, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
        client: Any = self._client or self._connected()
        try:
            return _run(client, name, bucket, arguments)
        except AttributeError as error:  # redis-py follows an ASK to a node that it has not heard of yet
            client.nodes_manager.initialize()
            raise RedisClusterException("a node of the cluster is new") from error

    def part(self, bucket: str) -> str:
        return slot_owner(self._client, bucket) if self._client else ""

    def mend(self, error: Exception) -> None:
        """A client that knows no living node any more begins anew with those of the URL."""
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
    """Return host and port of the primary that has the bucket, as a client of a cluster knows.

    Slots that nobody has are a part of their own: they must not take those along that somebody has.
    """
    slots = client.nodes_manager.slots_cache
    nodes = slots.get(client.keyslot(bucket))
    return nodes[0].name if nodes else NOBODY if slots else ""


def _run(client: Any, name: str, bucket: str, arguments: Arguments) -> Sequence[Any]:
    reply: Sequence[Any]
    try:
        reply = client.evalsha(digest(name), 1, bucket, *arguments)
    except NoScriptError:
        # Not SCRIPT LOAD: redis-py sends that to all primaries, of which another may be gone, and not to the one that
        # a slot is just moving to. An EVAL goes where the EVALSHA went, and leaves the script there too.
        reply = client.eval(script(name), 1, bucket, *arguments)
    return reply

"""The slots of shared limits in Redis or Valkey, for threads."""

from collections.abc import Callable, Sequence
from typing import Any

from batchlimit.bucket.slot_messages import SlotAsk, SlotReply
from batchlimit.stores.client.scripts import bucket_name, lend_arguments, read_slots
from batchlimit.stores.client.subscription import Subscription

_END = ":slots"


def slots_name(prefix: str, key: str) -> str:
    """Return the name of the hash of a limit, of a `stored` key; it is in the slot of the key's bucket."""
    return bucket_name(prefix, key) + _END


class RedisSlots:
    """The shared limits under one prefix."""

    def __init__(
        self,
        run: Callable[..., Any],
        ask: Callable[..., Sequence[Any]],
        pubsub: Callable[[], Any],
        prefix: str,
    ) -> None:
        self._run, self._ask, self._pubsub, self._prefix = run, ask, pubsub, prefix
        self._channel = f"{prefix}:instance:"

    def lend(self, key: str, ask: SlotAsk) -> SlotReply:
        """See Lender.lend."""
        reply: SlotReply = self._run(
            "lend", slots_name(self._prefix, key), lend_arguments(ask, self._channel), read_slots
        )
        return reply

    def subscribe(self, instance: str) -> Subscription:
        """Return the pushes for an instance, from when it is opened."""
        return Subscription(self._pubsub(), self._channel + instance)

    def knock(self, key: str, instance: str) -> None:
        """Publish to an instance, at the server that has the limit of a key; the push is about no limit."""
        self._ask(slots_name(self._prefix, key), ("PUBLISH", self._channel + instance, "- 0 0 -1 -"))

    def name(self, key: str) -> str:
        """Return the name by which pushes tell of a key."""
        return slots_name(self._prefix, key)

"""The slots of shared limits in Redis or Valkey, for threads."""

from collections.abc import Callable, Sequence
from typing import Any

from batchlimit.lending.messages import SlotAsk, SlotPush, SlotReply
from batchlimit.quota.key import bucket_name
from batchlimit.stores.client.scripts import lend_arguments, read_push, read_slots

_END = ":slots"


def slots_name(prefix: str, key: str) -> str:
    """Return the name of the hash of a limit; it is in the slot of the key's bucket."""
    return bucket_name(prefix, key) + _END


class RedisSlots:
    """The shared limits under one prefix."""

    def __init__(
        self,
        run: Callable[[str, str, Sequence[str | bytes]], Sequence[Any]],
        pubsub: Callable[[], Any],
        prefix: str,
    ) -> None:
        self._run, self._pubsub, self._prefix = run, pubsub, prefix
        self._channel = f"{prefix}:instance:"

    def lend(self, key: str, ask: SlotAsk) -> SlotReply:
        """See Lender.lend."""
        return read_slots(self._run("lend", slots_name(self._prefix, key), lend_arguments(ask, self._channel)))

    def subscribe(self, instance: str) -> "RedisPushes":
        """Return what an instance is told, from now on. It connects at its first read."""
        return RedisPushes(self._pubsub(), self._channel + instance)

    def name(self, key: str) -> str:
        """Return the name by which pushes tell of a key."""
        return slots_name(self._prefix, key)


class RedisPushes:
    """One subscription, on a connection of its own; for one thread."""

    def __init__(self, pubsub: Any, channel: str) -> None:
        self._pubsub, self._channel = pubsub, channel

    def __repr__(self) -> str:
        return f"<RedisPushes at {self._channel}>"

    def open(self) -> None:
        """Connect and subscribe; return when the store has confirmed it."""
        self._pubsub.subscribe(self._channel)
        while (message := self._pubsub.get_message(timeout=None)) is None or message["type"] != "subscribe":
            pass

    def read(self, seconds: float) -> tuple[str, SlotPush] | None:
        """Return the next push and the name of its limit; None if there was none for so many seconds."""
        message = self._pubsub.get_message(timeout=seconds)
        return read_push(message["data"]) if message and message["type"] == "message" else None

    def close(self) -> None:
        """Disconnect."""
        self._pubsub.close()

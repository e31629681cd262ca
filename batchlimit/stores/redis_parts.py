"""What a Redis store keeps beside buckets, under one prefix: overrides, pauses, and the slots of shared limits."""

from collections.abc import Callable, Sequence
from typing import Any

from batchlimit.base.steps import Steps
from batchlimit.bucket.slot_messages import SlotAsk, SlotReply
from batchlimit.quota.overrides.known import Published
from batchlimit.quota.overrides.overrides import Change, Entry, Overrides
from batchlimit.quota.quota import Quota
from batchlimit.stores.base_redis import first
from batchlimit.stores.client import rulebook
from batchlimit.stores.client.rulebook import log_name, obeyed_name, rules_name, text
from batchlimit.stores.client.scripts import (
    PROBE_QUOTA,
    bucket_name,
    lend_arguments,
    line_arguments,
    pause_arguments,
    read_slots,
)
from batchlimit.stores.client.subscription import Subscription


class RedisRules:
    """The overrides under one prefix, for threads and for tasks.

    Args:
        ask: sends commands; it is called or awaited.
        run: runs a script, and reads its reply; it is called or awaited.
        follow: goes through steps, and calls or awaits what they yield.
        prefix: of the names.
    """

    __slots__ = ("_ask", "_follow", "_prefix", "_run")

    def __init__(
        self, ask: Callable[..., Any], run: Callable[..., Any], follow: Callable[[Steps[Any]], Any], prefix: str
    ) -> None:
        self._ask, self._run, self._follow, self._prefix = ask, run, follow, prefix

    def read(self, known: int) -> Any:
        """See RuleStore.read."""

        def steps() -> Steps[Published]:
            name = rules_name(self._prefix)
            if found := rulebook.unchanged((yield self._ask(name, *rulebook.look(self._prefix))), known):
                return found
            return rulebook.published((yield self._ask(name, *rulebook.read(self._prefix))))

        return self._follow(steps())

    def remind(self, overrides: Overrides) -> Any:
        """See RuleStore.remind."""

        def steps() -> Steps[None]:
            name = obeyed_name(self._prefix)
            told, _ = yield self._ask(name, *rulebook.recall(self._prefix))
            if text(told or b"") != str(overrides.revision):
                yield self._ask(name, *rulebook.remind(self._prefix, overrides))

        return self._follow(steps())

    def change(self, change: Change) -> Any:
        """See RuleStore.change."""
        arguments = rulebook.change_arguments(self._prefix, change)
        return self._run("change", rules_name(self._prefix), arguments, rulebook.changed)

    def log(self, count: int) -> Any:
        """See RuleStore.log."""

        def steps() -> Steps[list[Entry]]:
            (reply,) = yield self._ask(log_name(self._prefix), rulebook.read_log(self._prefix, count))
            return rulebook.entries(reply)

        return self._follow(steps())

    def obeyed(self) -> Overrides:
        """Return what instances have reminded of within the last minute; for threads."""
        name = obeyed_name(self._prefix)
        return rulebook.obeyed(self._ask(name, ("HGET", name, "said"))[0])

    def bucket(self, key: str) -> tuple[dict[str, str], float]:
        """Return the fields of a bucket, and the server's clock (seconds since 1970); for threads."""
        name = bucket_name(self._prefix, key)
        return rulebook.bucket(self._ask(name, *rulebook.look_into(name)))


_SECOND = 1_000_000
_NONE = -1
"""What pause.lua says where there was no pause to lift."""


class RedisPauses:
    """The pauses under one prefix; see lua/pause.lua. Its methods are called or awaited, as `run` is."""

    __slots__ = ("_prefix", "_run")

    def __init__(self, run: Callable[..., Any], prefix: str) -> None:
        """`run` takes a script's name, a bucket's, arguments, and what reads the reply."""
        self._run, self._prefix = run, prefix

    def pause(self, key: str, quota: Quota, seconds: float, why: str) -> Any:
        """See Pauses.pause."""
        arguments = pause_arguments(quota, seconds, why)
        return self._run("pause", bucket_name(self._prefix, key), arguments, lambda reply: first(reply) / _SECOND)

    def resume(self, key: str) -> Any:
        """See Pauses.resume."""
        arguments = pause_arguments(PROBE_QUOTA, 0, "")
        return self._run("pause", bucket_name(self._prefix, key), arguments, lambda reply: first(reply) != _NONE)

    def line_up(self, key: str, wait: float, spacing: float, longest: float) -> Any:
        """See Pauses.line_up."""
        name, arguments = bucket_name(self._prefix, key) + ":line", line_arguments(wait, spacing, longest)
        return self._run("line", name, arguments, lambda reply: first(reply) / _SECOND)


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

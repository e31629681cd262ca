"""The overrides that lie in Redis or Valkey under one prefix, for threads and for tasks."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from batchlimit.overrides.known import Published
from batchlimit.overrides.log import Change, Entry
from batchlimit.overrides.overrides import Overrides
from batchlimit.stores.client import rulebook
from batchlimit.stores.client.rulebook import log_name, obeyed_name, rules_name, text
from batchlimit.stores.client.scripts import bucket_name


class RedisRules:
    """The overrides under one prefix."""

    def __init__(
        self,
        ask: Callable[..., Sequence[Any]],
        run: Callable[[str, str, Sequence[str | bytes]], Sequence[Any]],
        prefix: str,
    ) -> None:
        self._ask, self._run, self._prefix = ask, run, prefix

    def read(self, known: int) -> Published:
        """See RuleStore.read."""
        name = rules_name(self._prefix)
        if found := rulebook.unchanged(self._ask(name, *rulebook.look(self._prefix)), known):
            return found
        return rulebook.published(self._ask(name, *rulebook.read(self._prefix)))

    def remind(self, overrides: Overrides) -> None:
        """See RuleStore.remind."""
        name = obeyed_name(self._prefix)
        told, _ = self._ask(name, *rulebook.recall(self._prefix))
        if text(told or b"") != str(overrides.revision):
            self._ask(name, *rulebook.remind(self._prefix, overrides))

    def obeyed(self) -> Overrides:
        """Return what instances have reminded of within the last minute."""
        name = obeyed_name(self._prefix)
        return rulebook.obeyed(self._ask(name, ("HGET", name, "said"))[0])

    def bucket(self, key: str) -> tuple[dict[str, str], float]:
        """Return the fields of a bucket, and the server's clock (seconds since 1970)."""
        name = bucket_name(self._prefix, key)
        return rulebook.bucket(self._ask(name, *rulebook.look_into(name)))

    def change(self, change: Change) -> tuple[bool, int]:
        """See RuleStore.change."""
        arguments = rulebook.change_arguments(self._prefix, change)
        return rulebook.changed(self._run("change", rules_name(self._prefix), arguments))

    def log(self, count: int) -> list[Entry]:
        """See RuleStore.log."""
        (reply,) = self._ask(log_name(self._prefix), rulebook.read_log(self._prefix, count))
        return rulebook.entries(reply)


class AsyncRedisRules:
    """See RedisRules."""

    def __init__(
        self,
        ask: Callable[..., Awaitable[Sequence[Any]]],
        run: Callable[[str, str, Sequence[str | bytes]], Awaitable[Sequence[Any]]],
        prefix: str,
    ) -> None:
        self._ask, self._run, self._prefix = ask, run, prefix

    async def read(self, known: int) -> Published:
        """See RuleStore.read."""
        name = rules_name(self._prefix)
        if found := rulebook.unchanged(await self._ask(name, *rulebook.look(self._prefix)), known):
            return found
        return rulebook.published(await self._ask(name, *rulebook.read(self._prefix)))

    async def remind(self, overrides: Overrides) -> None:
        """See RuleStore.remind."""
        name = obeyed_name(self._prefix)
        told, _ = await self._ask(name, *rulebook.recall(self._prefix))
        if text(told or b"") != str(overrides.revision):
            await self._ask(name, *rulebook.remind(self._prefix, overrides))

    async def change(self, change: Change) -> tuple[bool, int]:
        """See RuleStore.change."""
        return rulebook.changed(
            await self._run("change", rules_name(self._prefix), rulebook.change_arguments(self._prefix, change))
        )

    async def log(self, count: int) -> list[Entry]:
        """See RuleStore.log."""
        (reply,) = await self._ask(log_name(self._prefix), rulebook.read_log(self._prefix, count))
        return rulebook.entries(reply)

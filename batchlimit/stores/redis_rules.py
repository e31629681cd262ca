"""The overrides that lie in Redis or Valkey under one prefix."""

from collections.abc import Callable
from typing import Any

from batchlimit.base.steps import Steps
from batchlimit.overrides.known import Published
from batchlimit.overrides.log import Change, Entry
from batchlimit.overrides.overrides import Overrides
from batchlimit.stores.client import rulebook
from batchlimit.stores.client.rulebook import log_name, obeyed_name, rules_name, text
from batchlimit.stores.client.scripts import bucket_name


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

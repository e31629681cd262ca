"""What the registries of both APIs share: what a limiter was made with, and what all of its keys did."""

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from batchlimit.errors import LimiterClosed
from batchlimit.keyspace.census import Census
from batchlimit.keyspace.from_memory import FromMemory
from batchlimit.keyspace.keyspace import Keyspace
from batchlimit.keyspace.rule_reader import RuleReader
from batchlimit.quota.failure_policy import warn_if_uncounted
from batchlimit.quota.overrides.code import Code, CodeFile, Rank, Rule, unsaid
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.statistics import Statistics

CLOSED = "this limiter was closed"


class BaseRegistry:
    """The key entries of a limiter by the `place_of` their keys, its code, and its store with a guard around it."""

    rules: RuleReader
    store: Any
    calls: Any
    """The `store_calls` of this API."""
    _keyspace: Keyspace[Any]
    attempt: AbstractContextManager[object] = nullcontext()
    """In what a caller takes the tokens of several keys; where time is virtual, nobody else moves it meanwhile."""

    def __init__(self, store: Any, rule: Rule | CodeFile, options: Options, clock: Callable[[], float]) -> None:
        """`rule` returns the quota of a key, or is the file that says it."""
        warn_if_uncounted(options.on_failure)
        self._opened, self._options, self.clock = store, options, clock
        self.owns_store = False  # whether it is closed with the limiter; if the user made it, others may share it
        self.entries: dict[str, Any] = {}
        self.memory = FromMemory(self.entries, clock, self.calls.refund)
        self.closed = False
        self.file = rule if isinstance(rule, CodeFile) else None
        rank = Rank(options.revision, clock())  # a fork changes the instance, but not when its quotas were set
        made_with = unsaid if isinstance(rule, CodeFile) else rule
        self.code = self._made_with = Code(made_with, options.on_failure, options.mode, rank)

    def own_store(self, connect_timeout: float) -> None:
        """Close the store with the limiter, for nobody else has it; to connect to it may take so many seconds."""
        self.owns_store = True
        self.store.allow(connect_timeout)

    @property
    def keys(self) -> int:
        """How many keys are in memory, dormant ones among them."""
        return len(self._keyspace)

    @property
    def rule(self) -> Rule:
        """The quota of a key by the code."""
        return self.code.quota

    def check_open(self) -> None:
        """Raise LimiterClosed after close()."""
        if self.closed:
            raise LimiterClosed(CLOSED)

    def _new_keyspace(self, make: Callable[..., Any], left: Callable[[Any], None]) -> Keyspace[Any]:
        """Return the keyspace of an instance that the store has never heard of; see Keyspace for what is called."""
        return Keyspace(
            self.entries,
            self._options,
            instance=secrets.token_hex(8),
            clock=self.clock,
            make=make,
            left=left,
            rules=self.rules.known,
            code=self.code,
        )

    def _counted(self, census: Census, give_way: Callable[[], None]) -> Statistics:
        """Take a census that has begun."""
        census.take(give_way)
        failures = self.rules.known.failures + (0 if self.file is None else self.file.failures)
        return self._keyspace.statistics(census, self.store.health, failures)

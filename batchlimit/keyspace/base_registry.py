"""What the registries of both APIs share: what a limiter was made with, hears of, and what all of its keys did."""

import contextlib
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from batchlimit.base.steps import Steps
from batchlimit.errors import LimiterClosed, StoreUnavailable
from batchlimit.events import log_event
from batchlimit.keyspace.census import Census
from batchlimit.keyspace.keyspace import Keyspace
from batchlimit.keyspace.several import FromMemory
from batchlimit.quota.failure_policy import warn_if_uncounted
from batchlimit.quota.overrides.code import Code, CodeFile, Rank, Rule, unsaid
from batchlimit.quota.overrides.known import OverridesCache
from batchlimit.quota.overrides.override import Lost, NotUnderstood
from batchlimit.reservoir.options import Options
from batchlimit.reservoir.statistics import Statistics

CLOSED = "this limiter was closed"


class RuleReader:
    """What the limiter knows of the overrides, and the steps by which a thread or a task reads them."""

    def __init__(
        self,
        rules: Any,
        clock: Callable[[], float],
        begin: Callable[[Steps[None]], object],
        reconsider: Callable[[], object],
    ) -> None:
        """`rules` is None if the store keeps none; `begin` has steps taken; `reconsider` has all keys go by the rules.

        The caller of `begin` may hold the lock of a key. A task awaits what `reconsider` returns.
        """
        self._rules, self._clock, self._begin, self._reconsider = rules, clock, begin, reconsider
        self.known = OverridesCache(clock, self._look)
        self.is_closed = False  # with the limiter: what a read fails by, whose store was closed meanwhile, is no news

    def expire(self) -> float:
        """Let overrides end that are over; return when the next one ends."""
        if self.known.expire():
            self._reconsider()
        return self.known.next_end

    def _look(self) -> None:
        if self._rules is None:
            return
        try:
            self._begin(self.read())
        except Exception as error:  # noqa: BLE001  no thread can be had, or a task factory of the user's own raises
            self.known.fail(error)  # another answer will tell of it again

    def read(self) -> Steps[None]:
        """Read the overrides, and have all keys go by them."""
        sent, before = self._clock(), self.known.in_force
        try:
            self.known.learn((yield self._rules.read(self.known.revision)), sent)
            if self.known.in_force is not before:
                yield self._reconsider()
                revision, number = self.known.revision, len(self.known.in_force.overrides)
                message = "revision %d of the overrides is obeyed: there are %d"
                log_event("rules.changed", message, revision, number, revision=revision, overrides=number)
        except (StoreUnavailable, NotUnderstood) as error:
            if self.known.fail(error):
                message = "the overrides in the store are not used, and those known before still are: %s"
                log_event("rules.unreadable", message, error, reason=str(error))
            if isinstance(error, Lost):
                with contextlib.suppress(Exception):  # it is for people to read; this instance does not need it
                    yield self._rules.remind(self.known.in_force.overrides)
        except Exception as error:  # noqa: BLE001  a store of the user's own
            self.known.fail(error)
            if not self.is_closed:
                log_event("rules.unreadable", "reading the overrides failed; those known before are used", error=error)


class BaseRegistry:
    """The key entries of a limiter by the `place_of` their keys, its code, and its store with a guard around it."""

    rules: RuleReader
    store: Any
    live_entry: Callable[[str], Any]
    """Returns the entry of a key that has not retired; makes it if there is none."""
    _keyspace: Keyspace[Any]
    attempt: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    """In what a caller takes the tokens of several keys; where time is virtual, nobody else moves it meanwhile."""

    def __init__(self, store: Any, rule: Rule | CodeFile, options: Options, clock: Callable[[], float]) -> None:
        """`rule` returns the quota of a key, or is the file that says it."""
        warn_if_uncounted(options.on_failure)
        self._opened, self._options, self.clock = store, options, clock
        self.owns_store = False  # whether it is closed with the limiter; if the user made it, others may share it
        self.entries: dict[str, Any] = {}
        self.memory = FromMemory(self.entries, clock)
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

    def refund_all(self, costs: Mapping[str, int]) -> None:
        """Take back what was charged, too late to be of use."""
        for key, cost in costs.items():
            self.live_entry(key).refund(cost)

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

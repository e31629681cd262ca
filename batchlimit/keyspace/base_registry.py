"""What the registries of both APIs share: what a limiter was made with, hears of, and what all of its keys did."""

import contextlib
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from batchlimit.base.decision import Decision
from batchlimit.base.key import check_key, stored
from batchlimit.base.steps import Steps
from batchlimit.base.waiting import NO_WAIT
from batchlimit.errors import LimiterClosed, StoreUnavailable
from batchlimit.events import log_event
from batchlimit.keyspace.census import Census
from batchlimit.keyspace.keyspace import Keyspace
from batchlimit.keyspace.several import FromMemory
from batchlimit.keyspace.spending import is_charged
from batchlimit.quota.failure_policy import warn_if_uncounted
from batchlimit.quota.overrides.code import Code, CodeFile, Rank, Rule, unsaid
from batchlimit.quota.overrides.known import OverridesCache
from batchlimit.quota.overrides.override import Lost, NotUnderstood
from batchlimit.reservoir.options import Options, check_pause, check_turn
from batchlimit.reservoir.statistics import Statistics
from batchlimit.reservoir.waiter import Fail

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
    entry: Callable[[str], Any]
    live_entry: Callable[[str], Any]
    """Return the entry of a key, and one that has not retired; make it if there is none."""
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

    # Calls that ask the store for themselves, whatever is leased: a thread calls what is yielded, and a task awaits it.

    def peek(self, key: str) -> Steps[Decision]:
        """Return how the next call of cost 1 would fare."""
        entry, clock = self.entry(key), self.clock
        state, forecast = entry.reservoir.state, entry.reservoir.forecast
        if (told := forecast.without_bucket(clock())) is not None:
            return told  # type: ignore[no-any-return]
        level = yield self.store.outcome(self.store.peek, entry.key, state.quota)
        if not isinstance(level, StoreUnavailable):
            return entry.locked(lambda: forecast.at_level(level, clock()))  # type: ignore[no-any-return]
        self.check_open()  # else the error tells of our end, not of the store
        if (told := entry.locked(lambda: forecast.without_store(clock()))) is None:
            raise state.fallback.failure(level).to_raise(key)
        return told  # type: ignore[no-any-return]

    def pause(self, key: str, seconds: float, why: str) -> Steps[None]:
        """Pause a key for the whole fleet; where the store is away, for this process, then raise StoreUnavailable."""
        seconds = check_pause(seconds, why)
        entry, pauses = self.entry(key), self.store.pauses
        if (quota := entry.reservoir.state.to_ask_with) is None:
            return  # nothing is admitted there
        told = yield self.store.outcome(self.store.call, entry.key, pauses.pause, entry.key, quota, seconds, why)
        failed = self._failure(key, told)
        left = seconds if failed else told
        while left and not self.live_entry(key).hold(left):
            pass  # it had just retired
        if failed:
            raise failed

    def resume(self, key: str) -> Steps[bool]:
        """End the pause of a key; return whether there was one."""
        entry, pauses = self.entry(key), self.store.pauses
        was_paused = yield self.store.outcome(self.store.call, entry.key, pauses.resume, entry.key)
        if failed := self._failure(key, was_paused):
            raise failed
        entry = self.live_entry(key)
        entry.locked(entry.reservoir.lifecycle.resume)
        return was_paused  # type: ignore[no-any-return]

    def line_up(self, key: str, wait: float, spacing: float, longest: float) -> Steps[float]:
        """Return the seconds until the next turn of the fleet's at a key; a turn after `longest` is not given."""
        self.check_open()
        name, turn, pauses = stored(check_key(key)), check_turn(wait, spacing, longest), self.store.pauses
        seconds = yield self.store.outcome(self.store.call, name, pauses.line_up, name, *turn)
        if failed := self._failure(key, seconds):
            raise failed
        return seconds  # type: ignore[no-any-return]

    def _failure(self, key: str, told: object) -> Exception | None:
        if not isinstance(told, StoreUnavailable):
            return None
        self.check_open()  # else the error tells of our end, not of the store
        return Fail(told).to_raise(key)

    def spend_together(self, costs: Mapping[str, int], came: dict[str, int]) -> Steps[dict[str, Decision] | None]:
        """Charge keys of which none is in use by one spend, or none; return what to tell. None: by their entries.

        `came` gets the numbers of spends in vain, by key.
        """
        if self.closed or not (self.store.spends if len(costs) == 1 else self.store.spends_together):
            return None
        for key in costs:
            check_key(key)
        spends: Any = self.spends  # type: ignore[attr-defined]  # those of the API
        begun, outcome = yield spends.spend(costs)
        if is_charged(outcome):
            return {each.key: each.decision() for each in begun}
        came.update((each.key, each.number) for each in begun)
        if not isinstance(outcome, tuple):
            return None
        short = max(begun, key=lambda each: each.refusal().retry_after)  # the one that lacks its tokens for longest
        settled = yield spends.in_vain(short, outcome, NO_WAIT)
        return None if settled is None or settled.admitted else {short.key: settled.decision(self.clock())}

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

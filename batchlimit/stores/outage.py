"""The outages of a store: circuit breakers, probes, their lines in the log, and what a call raises."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from random import uniform
from typing import Any

from tenacity import RetryCallState, retry_if_exception, wait_exponential, wait_random

from batchlimit.base.clock import steady
from batchlimit.base.histogram import Durations
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.events import log_event, named
from batchlimit.quota.failure_policy import CircuitOpen
from batchlimit.reservoir.statistics import Health

SOON = 10.0
"""Seconds. A breaker that opens again sooner has relapsed: each relapse doubles the pause before the first probe."""
THRESHOLD = 3
"""Consecutive failures that open a breaker. Each of them costs its caller a deadline."""


class Breaker:
    """Counts failures of one part of a store: THRESHOLD consecutive ones open it, one answer closes it."""

    __slots__ = ("_closed", "consecutive_failures", "error", "opened_at", "probe_at", "relapses")

    def __init__(self) -> None:
        self.consecutive_failures = 0
        self.relapses = 0  # how often it opened again soon after it had closed
        self._closed = -math.inf
        self.opened_at: float | None = None  # when it opened
        self.error: StoreUnavailable | None = None  # of the last failure
        self.probe_at = -math.inf  # while it is open: when the next probe is due

    @property
    def is_failing(self) -> bool:
        """Whether at least two calls failed in a row: then no call waits for a connection."""
        return self.consecutive_failures > 1

    def plan_probe(self, seconds: float, now: float) -> float:
        """Note that the next probe is due in so many seconds; return them."""
        self.probe_at = now + seconds
        return seconds

    def failed(self, error: StoreUnavailable, now: float) -> bool:
        """Count a failure; True if this one opened it."""
        self.consecutive_failures += 1
        self.error = error
        if self.opened_at is not None or self.consecutive_failures < THRESHOLD:
            return False
        self.relapses = self.relapses + 1 if now - self._closed < SOON else 0
        self.opened_at = now
        return True

    def answered(self, now: float) -> float | None:
        """Count an answer; if this one closed it, return for how many seconds it was open."""
        opened_at, self.opened_at = self.opened_at, None
        self.consecutive_failures, self.error = 0, None
        if opened_at is None:
            return None
        self._closed = now
        return now - opened_at


class _ByPart(dict[str, Breaker]):
    def __missing__(self, part: str) -> Breaker:
        return self.setdefault(part, Breaker())


FIRST = (0.05, 0.15)
"""Seconds before the first probe, at least and at most. Each relapse doubles them, up to SELDOM."""
SELDOM = 3.0
"""Seconds before the first probe, at most, after many relapses. With 10 s, one recovery of 180 in ten minutes of faults
took 9.8 s."""
WITHOUT = 1.0
"""Seconds between two probes where no prober can be started: each of them costs a caller a deadline."""
BACKOFF = wait_exponential(multiplier=0.1, max=1.0) + wait_random(0.0, 0.1)
"""Seconds between two probes: 0.1, 0.2, 0.4, 0.8 and then 1. Up to 0.1 is added to each at random, so that processes
that lost a store at the same time do not all probe it at the same time."""


class Outages:
    """Which parts of one store are away: counts what its calls end with, and says who has to probe.

    A guarded store has one. It looks at the breaker of a part before a call, and reports `answered` or `failed` after
    it. While a circuit breaker is open, one prober (a thread or a task) works off a Probe, until the part answers.
    """

    def __init__(
        self, address: Callable[[], str], lock: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        """`address` is the store's; `lock` is entered to change the circuit breakers (default: nothing is locked)."""
        self._address, self.lock = address, lock
        self.breakers: dict[str, Breaker] = _ByPart()
        """The circuit breaker of each part."""
        self._failures = self._outages = 0
        self._durations = Durations()
        self.took = self._durations.add
        """Counts how long (s) a call took."""
        self._probes: dict[str, Probe] = {}
        self._told: set[str] = set()

    @property
    def health(self) -> Health:
        with self.lock():
            available = all(each.opened_at is None for each in list(self.breakers.values()))
            return Health(self._failures, self._outages, available, self._durations.read())

    def refusal(self, part: str) -> CircuitOpen:
        """Return what a call raises that is not made because the circuit breaker of its part is open."""
        breaker, address = self.breakers[part], self._address()
        error = breaker.error or StoreUnavailable("it has just come back")
        told = f"circuit open, next probe in {max(0.0, breaker.probe_at - steady()):.2f} s, see on_failure"
        message = f"{_name(address, part)} is away ({told}): {_why(error, address)}"
        return CircuitOpen(message, address=address, code=error.code)

    def answered(self, part: str) -> None:
        """Count an answer. It closes the circuit breaker; the end of an outage is logged."""
        if self.breakers[part].consecutive_failures == 0:
            return
        with self.lock():
            seconds = self.breakers[part].answered(steady())
        if seconds is not None:
            address, message = self._address(), "%s is back after %.1f s"
            told = _name(address, part), seconds
            log_event("store.back", message, *told, address=address, part=part, seconds=seconds)

    def failed(self, part: str, error: StoreUnavailable) -> bool:
        """Count a failure; True if it opened the circuit breaker. A prober and `log_unreachable` have to follow."""
        with self.lock():
            opened = self.breakers[part].failed(error, steady())
            self._failures += 1
            self._outages += opened
        return opened

    def unserved(self, key: str, error: StoreUnavailable) -> None:
        """Log what is wrong with one key, once for each code: who gets False learns no reason."""
        if error.code in self._told:
            return
        self._told.add(error.code)
        address, code = self._address(), error.code
        why = _why(error, address)
        message = "%s cannot serve %s, and on_failure decides: %s"
        log_event("key.unserved", message, address, named(key), why, key=key, address=address, code=code, reason=why)

    def has_prober(self, part: str) -> bool:
        """Whether a prober works on this outage. The prober of an earlier outage ends by itself."""
        probe = self._probes.get(part)
        return probe is not None and probe.is_needed and probe.is_alive()

    def began(self, probe: "Probe", is_alive: Callable[[], bool]) -> None:
        """Note that a prober has started; `is_alive` says whether it still runs."""
        probe.is_alive = is_alive
        self._probes[probe.part] = probe

    def rests(self, probe: "Probe") -> bool:
        """Note that no prober can start: callers are refused for a while. False: they were, so a call has to probe."""
        before, now = self._probes.get(probe.part), steady()
        due = now + self.breakers[probe.part].plan_probe(WITHOUT, now)
        self.began(probe, lambda: steady() < due)
        return before is None or not before.is_needed


class Probe:
    """The task of one prober: for which outage, by which key, and with which pauses."""

    __slots__ = ("_breaker", "_since", "is_alive", "key", "part", "pause")

    def __init__(self, part: str, key: str, breaker: Breaker) -> None:
        self.part, self.key = part, key
        self._breaker, self._since = breaker, breaker.opened_at
        wait: float = uniform(*FIRST) * 2.0 ** min(breaker.relapses, 10)
        self.pause = breaker.plan_probe(min(wait, SELDOM), steady())  # seconds before the first
        self.is_alive: Callable[[], bool] = lambda: False

    @property
    def is_needed(self) -> bool:
        """Whether the outage still lasts. An answer to any call ends it; the next outage has its own prober."""
        return self._breaker.opened_at == self._since

    @property
    def retries(self) -> dict[str, Any]:
        """When to probe again, as arguments of tenacity."""

        def pause(state: RetryCallState) -> float:
            return self._breaker.plan_probe(BACKOFF(state), steady())

        return {"retry": retry_if_exception(is_away), "wait": pause, "reraise": True}


def is_away(error: BaseException) -> bool:
    """Whether a probe has to be repeated. A failure of a single key needs no other probe: the part has answered."""
    return isinstance(error, Exception) and not isinstance(error, BucketUnavailable)


def log_unreachable(address: str, part: str, error: StoreUnavailable) -> None:
    """Log that an outage begins."""
    why = _why(error, address)
    message = "%s is away, on_failure decides until it is back: %s"
    log_event("store.away", message, _name(address, part), why, address=address, part=part, reason=why)


def too_late(address: str, seconds: float, hint: str = "") -> StoreUnavailable:
    """Return what a call raises that had no answer in so many seconds."""
    return StoreUnavailable(f"{address} did not answer in time ({seconds:g} s{hint})", address=address, code="TIMEOUT")


def addressed(error: StoreUnavailable, address: str) -> StoreUnavailable:
    """Return the error with the address of the store; errors of a user's own store may have none."""
    error.address = error.address or address
    return error


def _why(error: StoreUnavailable, address: str) -> str:
    """The message of the error without the address, which the caller has named before."""
    return str(error).removeprefix(f"{address} ").removeprefix("failed: ")


def _name(address: str, part: str) -> str:
    return f"{part} of {address}" if part else address


def unavailable(error: Exception, kind: type[StoreUnavailable] = StoreUnavailable) -> StoreUnavailable:
    """Return what a store raised as StoreUnavailable."""
    found = kind(f"the store failed: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found


def uncounted(error: Exception) -> StoreUnavailable:
    """Return an error that ends the wait of all callers: the circuit breaker does not count it, so never opens."""
    return unavailable(error, BucketUnavailable)

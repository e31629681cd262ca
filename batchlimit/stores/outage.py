"""Outages of a store: when a part of it is given up, how often it is probed, and what callers and operators read."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from random import uniform
from typing import Any

from tenacity import RetryCallState, retry_if_exception, wait_exponential, wait_random

from batchlimit.clock import steady
from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.failure_policy import CircuitOpen
from batchlimit.reservoir.statistics import Health
from batchlimit.stores.breaker import Breaker, Breakers

_logger = logging.getLogger("batchlimit")

FIRST = (0.05, 0.15)
"""Seconds, at least and at most, before the first probe; twice as many with each relapse,"""
SELDOM = 3.0
"""but no more than these: outages that follow each other are not always a store that answers probes alone. (With 10 s,
one recovery of 180 in ten minutes of faults took 9.8 s.)"""
ANY = Quota(1.0, 1)
"""A quota to look at a bucket with, to see whether somebody answers."""
BACKOFF = wait_exponential(multiplier=0.1, max=1.0) + wait_random(0.0, 0.1)
"""Seconds between two probes: 0.1, 0.2, 0.4, 0.8 and then 1, each with up to 0.1 on top, so that hosts that lost a
store in one moment do not all come back to it in one."""


class Outages:
    """Which parts of one store are away: counts what its calls end with, and says who has to probe.

    A guarded store has one. It asks for the `breaker` of a part before a call, and reports `answered` or `failed` after
    it. While a circuit breaker is open, one prober (a thread or a task) works off a Probe, until the part answers.
    """

    def __init__(
        self, address: Callable[[], str], lock: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        """`address` is the store's; `lock` is entered to change the circuit breakers (default: nothing is locked)."""
        self._address, self._lock = address, lock
        self._breakers = Breakers()
        self._probes: dict[str, Probe] = {}

    def __repr__(self) -> str:
        return repr(self._breakers)

    @property
    def health(self) -> Health:
        """How the store has been."""
        with self._lock():
            return self._breakers.health

    def breaker(self, part: str) -> Breaker:
        """Return the circuit breaker of a part."""
        return self._breakers.of(part)

    def refusal(self, part: str) -> CircuitOpen:
        """Return what a call raises that is not made because the circuit breaker of its part is open."""
        return circuit_open(self._address(), part, self.breaker(part), steady())

    def answered(self, part: str) -> None:
        """Count an answer: it closes the circuit breaker, and an open one is logged to be closed."""
        if self.breaker(part).in_a_row == 0:
            return
        with self._lock():
            seconds = self._breakers.answered(part, steady())
        if seconds is not None:
            say_back(self._address(), part, seconds)

    def failed(self, part: str, error: StoreUnavailable) -> bool:
        """Count a failure; True if it opened the circuit breaker. A prober and `say_away` have to follow."""
        with self._lock():
            return self._breakers.failed(part, error, steady())

    def has_prober(self, part: str) -> bool:
        """Whether a prober works on this outage; one of an outage before ends as soon as it looks."""
        probe = self._probes.get(part)
        return probe is not None and probe.is_needed and probe.is_alive()

    def probe(self, part: str, key: str) -> "Probe":
        """Plan the probes of an outage that has no prober, by the key of a call that failed."""
        return Probe(part, key, self.breaker(part))

    def began(self, probe: "Probe", is_alive: Callable[[], bool]) -> None:
        """Know that a prober has begun, and how to see whether it is still there."""
        probe.is_alive = is_alive
        self._probes[probe.part] = probe

    def give_up(self, probe: "Probe") -> None:
        """Close the circuit breaker, for no prober can be had: callers find out for themselves."""
        self._breakers.answered(probe.part, steady())


class Probe:
    """What one prober knows: the outage that it is for, the key to ask by, and the pauses to make."""

    __slots__ = ("_breaker", "_since", "is_alive", "key", "part", "pause")

    def __init__(self, part: str, key: str, breaker: Breaker) -> None:
        self.part, self.key = part, key
        self._breaker, self._since = breaker, breaker.since
        self.pause = breaker.plan_probe(first_wait(breaker.relapses), steady())  # seconds before the first
        self.is_alive: Callable[[], bool] = _never

    @property
    def is_needed(self) -> bool:
        """False when another call was answered: a later outage has its own prober."""
        return self._breaker.since == self._since

    @property
    def retries(self) -> dict[str, Any]:
        """When to probe again, as arguments of tenacity."""
        return {"retry": retry_if_exception(is_away), "wait": self._next_pause, "reraise": True}

    def _next_pause(self, state: RetryCallState) -> float:
        return self._breaker.plan_probe(BACKOFF(state), steady())


def _never() -> bool:
    return False


def first_wait(relapses: int) -> float:
    """Return the seconds before the first probe."""
    wait: float = uniform(*FIRST) * 2.0 ** min(relapses, 10)
    return min(wait, SELDOM)


def is_away(error: BaseException) -> bool:
    """Whether a probe has to be repeated: any failure but one that concerns a single key, which is an answer."""
    return isinstance(error, Exception) and not isinstance(error, BucketUnavailable)


def say_away(address: str, part: str, error: StoreUnavailable) -> None:
    """Log, once an outage, that it begins."""
    _logger.warning("%s is away, on_failure decides until it is back: %s", _name(address, part), _why(error, address))


def say_back(address: str, part: str, seconds: float) -> None:
    """Log that it is over."""
    _logger.warning("%s is back after %.1f s", _name(address, part), seconds)


def circuit_open(address: str, part: str, breaker: Breaker, now: float) -> CircuitOpen:
    """Return what a call ends with that is not sent, for the circuit breaker of this part is open."""
    error = breaker.error or StoreUnavailable("it has just come back")
    seconds = max(0.0, breaker.probe_at - now)
    told = f"circuit open, next probe in {seconds:.2f} s, see on_failure"
    return CircuitOpen(
        f"{_name(address, part)} is away ({told}): {_why(error, address)}", address=address, code=error.code
    )


def addressed(error: StoreUnavailable, address: str) -> StoreUnavailable:
    """Return the error, which says where the store is: one that a user made may not know."""
    error.address = error.address or address
    return error


def _why(error: StoreUnavailable, address: str) -> str:
    """What went wrong, without the address: whoever says it has named that."""
    return str(error).removeprefix(f"{address} ").removeprefix("failed: ")


def _name(address: str, part: str) -> str:
    return f"{part} of {address}" if part else address


def unavailable(error: Exception) -> StoreUnavailable:
    """What a store raised, as the one error that callers know."""
    found = StoreUnavailable(f"the store failed: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found

"""While a store is away: how often to ask whether it is back, and what an operator reads of it."""

import logging
from random import uniform

from tenacity import wait_exponential, wait_random

from batchlimit.errors import BucketUnavailable, StoreUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.reservoir.failure_policy import CircuitOpen
from batchlimit.stores.breaker import Breaker

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

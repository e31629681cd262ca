"""Providers of 100/s that say what is left, each in the form of one that exists, and strangers who use them too."""

import asyncio
import math
from collections.abc import Callable
from random import Random
from typing import Protocol

RATE = 100.0
BY_TURNS = 20.0, 80.0
"""What strangers call for, one after the other, each for TURN seconds (1/s)."""
TURN = 10.0


class Provider(Protocol):
    """What answers calls."""

    def take(self, now: float) -> bool:
        """Whether a call that comes now is admitted."""
        ...

    def says(self, now: float, *, admitted: bool) -> dict[str, str]:
        """Return the fields of its response."""
        ...


class TellingBucket:
    """A token bucket of 100/s and 100 at once, which tells what is left as OpenAI does."""

    def __init__(self, now: float) -> None:
        self._level, self._at = RATE, now

    def take(self, now: float) -> bool:
        """See Provider."""
        self._level, self._at = min(RATE, self._level + (now - self._at) * RATE), now
        if self._level < 1:
            return False
        self._level -= 1
        return True

    def says(self, now: float, *, admitted: bool) -> dict[str, str]:
        """See Provider."""
        told = {"limit": f"{RATE:.0f}", "remaining": f"{int(self._level)}"}
        told["reset"] = f"{round(1000 * (RATE - self._level) / RATE)}ms"
        return {f"x-ratelimit-{name}-requests": text for name, text in told.items()} | self.refusal(admitted)

    def refusal(self, admitted: bool) -> dict[str, str]:
        """Return when to come back."""
        return {} if admitted else {"retry-after-ms": str(math.ceil(1000 * (1 - self._level) / RATE))}


class SilentBucket(TellingBucket):
    """The same bucket, which says no more than when to come back."""

    def says(self, now: float, *, admitted: bool) -> dict[str, str]:
        """See Provider."""
        return self.refusal(admitted)


class MuteBucket(SilentBucket):
    """The same bucket, which says nothing at all."""

    def refusal(self, admitted: bool) -> dict[str, str]:
        """Return nothing."""
        return {}


class Windows:
    """So many seconds of 100/s at once in each window, which tells what is left by draft 11, in whole seconds."""

    def __init__(self, now: float, seconds: float) -> None:
        self._seconds, self._ends, self._left = seconds, now + seconds, RATE * seconds

    def take(self, now: float) -> bool:
        """See Provider."""
        while now >= self._ends:
            self._ends, self._left = self._ends + self._seconds, RATE * self._seconds
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def says(self, now: float, *, admitted: bool) -> dict[str, str]:
        """See Provider."""
        after = math.ceil(self._ends - now)
        policy = f'"default";q={RATE * self._seconds:.0f};w={self._seconds:.0f}'
        told = {"ratelimit-policy": policy, "ratelimit": f'"default";r={self._left:.0f};t={after}'}
        return told if admitted else told | {"retry-after": str(after)}


PROVIDERS: dict[str, Callable[[float], Provider]] = {
    "bucket": TellingBucket,
    "window 10 s": lambda now: Windows(now, 10.0),
    "window 60 s": lambda now: Windows(now, 60.0),
    "silent": SilentBucket,
    "mute": MuteBucket,
}


class Strangers:
    """Others who call the provider: at random, now seldom and now often, whatever it answers."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.admitted = self.refused = 0

    async def call(self) -> None:
        """Call for ever."""
        loop, dice = asyncio.get_running_loop(), Random(7)
        began = at = loop.time()
        while True:
            at += dice.expovariate(BY_TURNS[int((at - began) / TURN) % len(BY_TURNS)])
            await asyncio.sleep(at - loop.time())
            if self._provider.take(loop.time()):
                self.admitted += 1
            else:
                self.refused += 1

"""Reads buckets of a server, or of all primaries of a cluster, and spends no more of a server's time than a budget.

A look reads the keys that are watched, and goes on with SCAN where the last look ended. How long commands take is what
the server counts (INFO commandstats): its averages say how many more commands fit the budget.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import redis

from batchlimit.admin.buckets import buckets_of
from batchlimit.cli.top.board import FIELDS, BucketSample, sampled
from batchlimit.stores.client.diagnosis import FAILURES, failure
from batchlimit.stores.client.rulebook import text
from batchlimit.stores.redis import RedisStore

BUDGET = 10.0
"""Milliseconds of each server's time for a look."""
_STEP = 100
"""Names that a SCAN looks at, and buckets that are read in one round trip."""
_GUESSED = {"scan": 60.0, "hmget": 4.0, "info": 150.0}
"""Microseconds of a command, where the server does not tell."""


class Cost(NamedTuple):
    """What a look cost the servers."""

    calls: int  # commands
    ms: float  # milliseconds that they took the servers, together
    is_guessed: bool  # whether a server does not tell how long its commands take
    part: float  # the part of all names that SCAN has passed since its round began, 0 to 1; 1: all, in this look


class Look(NamedTuple):
    """What a look found: samples, the keys whose buckets have gone, and what it cost."""

    samples: list[BucketSample]
    gone: list[str]
    cost: Cost


class Sampler:
    """Looks at the buckets under one prefix, for `budget` ms of each server's time a look."""

    def __init__(self, store: RedisStore, prefix: str, budget: float = BUDGET) -> None:
        self._nodes = [_Server(name, client, prefix, budget * 1000) for name, client in store.primaries()]

    def look(self, watched: Iterable[str] = ()) -> Look:
        """Read the buckets of these keys, and of others as far as the budget goes; raises StoreUnavailable."""
        wanted = list(watched)
        looks = [each.look(wanted) for each in self._nodes]
        samples = [sample for each in looks for sample in each.samples]
        seen = {sample.key for sample in samples}
        calls, ms, guesses, parts = zip(*(each.cost for each in looks), strict=True)
        cost = Cost(sum(calls), sum(ms), any(guesses), sum(parts) / len(parts))
        return Look(samples, [key for key in wanted if key not in seen], cost)


class _Server:
    """One server, and what the commands of a look cost it, by what it counts itself."""

    def __init__(self, name: str, client: "redis.Redis", prefix: str, budget: float) -> None:
        self._client: Any = client
        self._name, self._budget = name, budget
        self._start, self._pattern = f"{{{prefix}:", buckets_of(prefix)
        self._cursor, self._passed, self._size = 0, 0, 0
        self._here: set[str] = set()  # keys that were found here
        self._prices, self._is_guessed = dict(_GUESSED), False  # microseconds of a command
        self._last: dict[str, tuple[float, float]] = {}  # how many of each it had counted, and their microseconds
        self._sent = Counter[str]()  # commands of this look

    def look(self, watched: Iterable[str]) -> Look:
        here, samples = [key for key in watched if key in self._here], dict[str, BucketSample]()
        self._sent.clear()
        try:
            if not self._last:
                self._learn()
            samples |= self._read(here)
            self._here.difference_update(key for key in here if key not in samples)
            part = self._go_on(samples)
            self._here.update(samples)
            self._learn()
        except FAILURES as error:
            raise failure(error, self._name) from error
        cost = Cost(self._sent.total(), self._spent() / 1000, self._is_guessed, part)
        return Look(list(samples.values()), [], cost)

    def _go_on(self, samples: dict[str, BucketSample]) -> float:
        """Read further buckets, until the budget is spent or all names were passed; return the part that was."""
        if self._cursor == 0:
            self._passed = self._size = 0
            with suppress(redis.ResponseError):  # a right that the user has not
                self._size = int(self._client.dbsize())
        while True:
            cursor, names = self._client.scan(self._cursor, match=self._pattern, count=_STEP)
            self._cursor, self._passed = int(cursor), self._passed + _STEP
            self._sent["scan"] += 1
            new = [key for name in names if (key := text(name)[len(self._start) : -1]) not in samples]
            samples |= self._read(new)
            if self._cursor == 0:
                return 1.0
            another = self._prices["scan"] + _STEP * self._prices["hmget"] + self._prices["info"]
            if self._spent() + another > self._budget:
                return min(0.99, self._passed / self._size) if self._size else 0.0

    def _read(self, keys: Sequence[str]) -> dict[str, BucketSample]:
        """Return the samples of keys of which there is a sound bucket."""
        found = {}
        for part in (keys[at : at + _STEP] for at in range(0, len(keys), _STEP)):
            pipeline = self._client.pipeline(transaction=False)
            pipeline.time()
            for key in part:
                pipeline.hmget(f"{self._start}{key}}}", *FIELDS)
            (seconds, microseconds), *replies = pipeline.execute(raise_on_error=False)
            self._sent["hmget"] += len(part)
            now = seconds + microseconds / 1e6
            for key, reply in zip(part, replies, strict=True):
                if not isinstance(reply, Exception):  # of another type, or moved to another node meanwhile
                    there = zip(FIELDS, reply, strict=True)
                    found[key] = sampled(key, {name: text(value) for name, value in there if value is not None}, now)
        return {key: sample for key, sample in found.items() if sample is not None}

    def _spent(self) -> float:
        """Return for how long (us) the commands of this look kept the server busy, by their prices."""
        return sum(times * self._prices[command] for command, times in self._sent.items())

    def _learn(self) -> None:
        """Learn the prices of commands from what the server has counted since the last time."""
        if self._is_guessed:
            return
        self._sent["info"] += 1
        try:
            told: dict[str, Any] = self._client.info("commandstats")
        except redis.ResponseError:
            self._is_guessed = True
            return
        for command in _GUESSED:
            if stats := told.get(f"cmdstat_{command}"):
                calls, usec = float(stats["calls"]), float(stats["usec"])
                before = self._last.get(command, (0.0, 0.0))
                if calls < before[0]:  # the server began to count anew
                    before = 0.0, 0.0
                if calls > before[0]:
                    self._prices[command] = (usec - before[1]) / (calls - before[0])
                self._last[command] = calls, usec

"""Reads buckets of a server, or of all primaries of a cluster, and spends no more of a server's time than a budget.

A look reads the keys that are watched, and goes on with SCAN where the last look ended. How long commands take is what
the server counts (INFO commandstats): its averages say how many more commands fit the budget.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import redis

from batchlimit.cli.output import buckets_of
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
    """One server."""

    def __init__(self, name: str, client: "redis.Redis", prefix: str, budget: float) -> None:
        self._name, self._client, self._budget = name, client, budget
        self._start, self._pattern = f"{{{prefix}:", buckets_of(prefix)
        self._cursor, self._passed, self._size = 0, 0, 0
        self._meter = _Meter(client)
        self._here: set[str] = set()  # keys that were found here

    def look(self, watched: Iterable[str]) -> Look:
        here, samples = [key for key in watched if key in self._here], dict[str, BucketSample]()
        try:
            self._meter.begin()
            for keys in _parts(here):
                samples |= self._read(keys)
            self._here.difference_update(key for key in here if key not in samples)
            part = self._go_on(samples)
            self._here.update(samples)
            calls, spent = self._meter.end()
        except FAILURES as error:
            raise failure(error, self._name) from error
        return Look(list(samples.values()), [], Cost(calls, spent / 1000, self._meter.is_guessed, part))

    def _go_on(self, samples: dict[str, BucketSample]) -> float:
        """Read further buckets, until the budget is spent or all names were passed; return the part that was."""
        client: Any = self._client
        if self._cursor == 0:
            self._passed = self._size = 0
            with suppress(redis.ResponseError):  # a right that the user has not
                self._size = int(client.dbsize())
        while True:
            cursor, names = client.scan(self._cursor, match=self._pattern, count=_STEP)
            self._cursor, self._passed = int(cursor), self._passed + _STEP
            self._meter.count("scan")
            new = [key for name in names if (key := text(name)[len(self._start) : -1]) not in samples]
            for keys in _parts(new):
                samples |= self._read(keys)
            if self._cursor == 0:
                return 1.0
            if not self._meter.has_room(self._budget, _STEP):
                return min(0.99, self._passed / self._size) if self._size else 0.0

    def _read(self, keys: Sequence[str]) -> dict[str, BucketSample]:
        """Return the samples of keys of which there is a sound bucket."""
        client: Any = self._client
        pipeline = client.pipeline(transaction=False)
        pipeline.time()
        for key in keys:
            pipeline.hmget(f"{self._start}{key}}}", *FIELDS)
        (seconds, microseconds), *replies = pipeline.execute(raise_on_error=False)
        self._meter.count("hmget", len(keys))
        now = seconds + microseconds / 1e6
        found = {}
        for key, reply in zip(keys, replies, strict=True):
            if not isinstance(reply, Exception):  # of another type, or moved to another node meanwhile
                found[key] = sampled(key, [None if value is None else text(value) for value in reply], now)
        return {key: sample for key, sample in found.items() if sample is not None}


class _Meter:
    """What the commands of a look cost a server, by what it counts."""

    def __init__(self, client: "redis.Redis") -> None:
        self._client: Any = client
        self._prices = dict(_GUESSED)
        self._last: dict[str, tuple[float, float]] = {}
        self._counts: dict[str, int] = {}
        self.is_guessed = False

    def begin(self) -> None:
        """Begin a look."""
        self._counts = {}
        if not self._last and not self.is_guessed:
            self._learn()

    def count(self, command: str, times: int = 1) -> None:
        """Take note that a command was sent."""
        self._counts[command] = self._counts.get(command, 0) + times

    def has_room(self, budget: float, further: int) -> bool:
        """Whether one more SCAN, and reads of so many buckets, fit a budget (us)."""
        more = self._prices["scan"] + further * self._prices["hmget"] + self._prices["info"]
        return self._spent() + more <= budget

    def end(self) -> tuple[int, float]:
        """End a look; return how many commands were sent, and how long they took (us)."""
        self._learn()
        return sum(self._counts.values()), self._spent()

    def _spent(self) -> float:
        return sum(times * self._prices[command] for command, times in self._counts.items())

    def _learn(self) -> None:
        if self.is_guessed:
            return
        self.count("info")
        try:
            told: dict[str, Any] = self._client.info("commandstats")
        except redis.ResponseError:
            self.is_guessed = True
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


def _parts(keys: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(keys)
    while part := list(islice(rest, _STEP)):
        yield part

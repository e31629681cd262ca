"""What keyed limiters for threads and for tasks have in common."""

import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, overload

from batchlimit.base.redaction import shown
from batchlimit.base.setting import between, function, whole
from batchlimit.base.unique import Unique
from batchlimit.concurrency.classification import Classify, classify
from batchlimit.concurrency.keyed.gates import KeyedGates
from batchlimit.concurrency.keyed.limits import Keyed, KeyedStatistics, KeyStatistics
from batchlimit.concurrency.locked_gate import Bypass, GateOptions
from batchlimit.concurrency.shedding import Shedding
from batchlimit.concurrency.watchers.rounds import Rounds
from batchlimit.concurrency.watchers.watcher import Watcher


class BaseKeyedLimiter(Unique):
    """The gates of all keys. Each of the two APIs has its own way to wait at them."""

    _instead = "make one in each process: each limits itself"

    def __init__(
        self,
        limits: Mapping[str, int | Keyed],
        *,
        classify: Classify = classify,
        bypass: Bypass | None = None,
        max_keys: int = 10_000,
        idle_after: float = 60.0,
        watchers: Sequence[Watcher] = (),
        every: float = 30.0,
        shedding: Shedding | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        max_keys, idle_after = whole("max_keys", max_keys), between("idle_after (seconds)", idle_after, 0, 1e9, "[]")
        options = GateOptions.checked(classify, bypass, watchers, shedding, clock)
        if shedding is not None and shedding.over is not None:
            raise ValueError("over= is about the limit of one key: give such a shedding to Keyed")
        self._gates = KeyedGates(limits, options, max_keys, idle_after)
        self._by_key = self._gates.by_key
        polled = (*options.watchers, self._gates) if self._gates.watches_keys else options.watchers
        self._rounds = Rounds(polled, self._gates.end_period, every=every, alone=self._gates.sheds)
        self._rounds.start()
        weakref.finalize(self, self._rounds.retire)  # one that was dropped unclosed leaves no thread behind

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self._gates!r}>"

    def statistics(self) -> KeyedStatistics:
        """Return how many calls are under way and wait now, and what was counted so far, by pattern.

        Returns:
            A copy, which changes no more.
        """
        return self._gates.statistics(self._rounds.statistics())

    @overload
    def listen(self, changed: Callable[[str, int, int], object]) -> None: ...
    @overload
    def listen(self, changed: Callable[[str, int, int, str], object], *, why: Literal[True]) -> None: ...
    def listen(self, changed: Callable[..., object], *, why: bool = False) -> None:
        """Have a function called after each change of the limit of a key.

        It is called in the thread that ended a call, without any lock: let it be quick. What it raises is logged. A key
        whose law is shared takes over the limit when one of its own calls ends, and `changed` is called then.

        Args:
            changed: Gets the key, and its limit before and after (calls).
            why: Whether `changed` gets the reason, too; see `ConcurrencyLimiter.listen` (default False).
        """
        self._gates.listen(function("changed", changed), why)

    def busiest(self, count: int = 10) -> list[KeyStatistics]:
        """Return the keys with the most calls under way and waiting now.

        Args:
            count: How many keys at most (default 10).

        Returns:
            The keys, the busiest first; keys without a call are left out.
        """
        return sorted(self._gates.busy(), key=lambda key: (-key.in_flight - key.waiting, key.key))[:count]

    def _order(self, keys: Iterable[str]) -> list[str]:
        """Return keys in the order in which all callers acquire them: that of the limits, then by name."""
        if isinstance(keys, str) or not isinstance(keys, Iterable):
            raise TypeError(f"several keys come as a list or another iterable, not as {shown(keys)}")
        found = list(keys)
        numbered = {(self._gates.pattern_of(key).number, key) for key in found}
        if not found:
            raise ValueError("there must be at least one key to acquire")
        if len(numbered) < len(found):
            raise ValueError(f"a key is named twice in {shown(found)}: one call holds one place at a key")
        return [key for _number, key in sorted(numbered)]

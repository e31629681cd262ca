"""The law that several keys teach together."""

import threading
from collections.abc import Mapping

from batchlimit.concurrency.law import Law, Sample
from batchlimit.concurrency.laws.baselines import baselines_of


class SharedLaw:
    """One law behind several gates, whose calls end in any thread.

    The garbage collector may complete a permit of another key while this thread updates or reads the law. That sample
    is left out: a law is never called in the middle of its own work.
    """

    __slots__ = ("_is_busy", "_law", "_lock")

    def __init__(self, law: Law) -> None:
        self._law = law
        self.after_fork()

    def __repr__(self) -> str:
        return f"<SharedLaw {self._law!r}>"

    def after_fork(self) -> None:
        """Forget who holds the lock: a thread of the parent may have."""
        self._lock, self._is_busy = threading.RLock(), False

    @property
    def limit(self) -> int:
        """How many calls of each key may be under way now."""
        return self._law.limit

    @property
    def baselines(self) -> Mapping[str, float]:
        """How long calls take without a queue, as the law holds; none if this thread interrupted its work."""
        with self._lock:
            if self._is_busy:
                return {}
            self._is_busy = True
            try:
                return baselines_of(self._law)
            finally:
                self._is_busy = False

    def update(self, sample: Sample) -> int:
        """Learn from a call of any of the keys; return the limit."""
        with self._lock:
            if self._is_busy:
                return self._law.limit
            self._is_busy = True
            try:
                return self._law.update(sample)
            finally:
                self._is_busy = False

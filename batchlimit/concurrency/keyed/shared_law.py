"""The law that several keys teach together."""

import threading

from batchlimit.concurrency.law import Law, Sample


class SharedLaw:
    """One law behind several gates, whose calls end in any thread.

    The garbage collector may complete a permit of another key while this thread updates the law. That sample is left
    out: a law is never called in the middle of its own work.
    """

    __slots__ = ("_is_learning", "_lock", "law")

    def __init__(self, law: Law) -> None:
        self.law = law
        self.after_fork()

    def __repr__(self) -> str:
        return f"<SharedLaw {self.law!r}>"

    def after_fork(self) -> None:
        """Forget who holds the lock: a thread of the parent may have."""
        self._lock, self._is_learning = threading.RLock(), False

    @property
    def limit(self) -> int:
        """How many calls of each key may be under way now."""
        return self.law.limit

    def update(self, sample: Sample) -> int:
        """Learn from a call of any of the keys; return the limit."""
        with self._lock:
            if self._is_learning:
                return self.law.limit
            self._is_learning = True
            try:
                return self.law.update(sample)
            finally:
                self._is_learning = False

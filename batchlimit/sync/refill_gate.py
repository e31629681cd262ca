"""Where the threads that find a key without tokens let one of them ask the store for all."""

import threading

from batchlimit.base.blocking import warn_in_loop


class RefillGate:
    """Lets one thread at a time look for tokens and ask the store; the threads behind it find the tokens it brought.

    In the queue each thread has to be woken, to be served one token. With 64 threads and a batch of 1,000 tokens that
    took three times as long as everything else.
    """

    __slots__ = ("_lock", "_patience")

    def __init__(self, patience: float) -> None:
        """`patience`: how long (s) a thread waits here at most."""
        self._lock, self._patience = threading.Lock(), patience

    def __repr__(self) -> str:
        return f"<RefillGate, {'shut' if self._lock.locked() else 'open'}>"

    def enter(self) -> bool:
        """Wait until this thread may pass, then call `leave`. False: it may not, its patience has ended."""
        warn_in_loop()
        return self._lock.acquire(timeout=self._patience)

    def leave(self) -> None:
        """Let the next thread pass."""
        self._lock.release()

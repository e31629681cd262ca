"""Measures how long a process stood still: a thread that only sleeps, and sees how late it wakes."""

import threading
import time

_NAP = 0.01


class Witness:
    """Watches from when it is made until the process ends."""

    def __init__(self) -> None:
        self._longest = 0.0
        threading.Thread(target=self._watch, name="witness", daemon=True).start()

    def take(self) -> float:
        """Return the longest time (s) by which it woke late since this was asked last."""
        longest, self._longest = self._longest, 0.0
        return longest

    def _watch(self) -> None:
        while True:
            due = time.monotonic() + _NAP
            time.sleep(_NAP)
            self._longest = max(self._longest, time.monotonic() - due)

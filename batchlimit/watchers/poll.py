"""One question to a watcher, and what came of it."""

import threading
from collections.abc import Callable

from batchlimit.watchers.base import Watcher


class Poll:
    """Asks a watcher in a thread of its own: if it hangs, nobody hangs with it. `ring` is called when it ended."""

    __slots__ = ("_ring", "_watcher", "ended", "error", "event")

    def __init__(self, watcher: Watcher, ring: Callable[[], None]) -> None:
        self._watcher = watcher
        self._ring = ring
        self.event: str | None = None
        self.error: BaseException | None = None
        self.ended = False  # the last to be set: whoever sees it sees the others, too

    def __repr__(self) -> str:
        return f"<Poll of {self._watcher!r}: {'ended' if self.ended else 'under way'}>"

    def start(self) -> None:
        """Ask; that there is no thread to ask in is what came of it."""
        thread = threading.Thread(target=self._run, name="batchlimit-watcher", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self.error, self.ended = error, True

    def _run(self) -> None:
        try:
            self.event = _checked(self._watcher.poll())
        except BaseException as error:  # noqa: BLE001 - there is nobody to raise it to; the round counts it
            self.error = error
        finally:
            self.ended = True
            self._ring()


def _checked(event: object) -> str | None:
    if event is not None and not isinstance(event, str):
        raise TypeError(f"poll() must return a text or None, not {event!r}")
    return event

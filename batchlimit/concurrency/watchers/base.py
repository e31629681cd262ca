"""What every watcher promises."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Watcher(Protocol):
    """Looks at one thing once a period. It is polled by one thread at a time, not always by the same.

    It may raise, or block for as long as it likes: whoever polls it must live with that.
    """

    @property
    def name(self) -> str:
        """What to call it in a log, and in the statistics."""
        ...

    def poll(self) -> str | None:
        """Return a reason to back off, with its figures; None: all is well, or there is nothing to tell by."""
        ...

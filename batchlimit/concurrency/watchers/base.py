"""What every watcher promises."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Watcher(Protocol):
    """Looks at one thing once a period. It is polled by one thread at a time, not always by the same.

    Example:
        >>> import os
        >>> from batchlimit import ConcurrencyLimiter
        >>> from batchlimit.watchers import Watcher
        >>> class LoadWatcher:
        ...     name = "load"
        ...     def poll(self) -> str | None:
        ...         load = os.getloadavg()[0]
        ...         return f"load {load:.1f}" if load > 1000 else None
        >>> isinstance(LoadWatcher(), Watcher)
        True
        >>> ConcurrencyLimiter(watchers=[LoadWatcher()], every=10.0).close()
    """

    @property
    def name(self) -> str:
        """Its name in logs and in the statistics."""
        ...

    def poll(self) -> str | None:
        """Look once. It may raise, or block for as long as it likes: the poller has to live with that.

        Returns:
            A reason to back off, with its figures; None if all is well, or if there is nothing to tell by.
        """
        ...

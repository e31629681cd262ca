"""What the engine of a shared limiter asks of others."""

from typing import Protocol

from batchlimit.lending.messages import SlotAsk, SlotReply


class Lender(Protocol):
    """Lends slots. It raises StoreUnavailable if there is no answer; any ask may be repeated."""

    def lend(self, key: str, ask: SlotAsk) -> SlotReply:
        """Answer one instance; `key` is as `batchlimit.quota.key.stored` returns it."""
        ...


class Closable(Protocol):
    """A store that the limiter opened."""

    def close(self) -> None:
        """Close it."""
        ...


class Wakeable(Protocol):
    """What a caller waits for."""

    def wake(self) -> None:
        """End the wait, from any thread; RuntimeError if nobody can be woken any more."""
        ...

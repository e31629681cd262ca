"""How many tokens a process leases at a time: the sizers, and the protocol for one of your own."""

from batchlimit.reservoir.sizing import BatchSizer, FixedBatch, FractionBatch, GrowingBatch, TimeBatch, Usage

__all__ = ["BatchSizer", "FixedBatch", "FractionBatch", "GrowingBatch", "TimeBatch", "Usage"]

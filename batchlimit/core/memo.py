"""What is remembered of a key at rest: so much that its next reservoir goes on where the last one ended."""

import struct
from typing import NamedTuple

_FORM = struct.Struct("9d")
"""A double holds every one of them exactly: the largest are an epoch (us) and a level, below 2^53 for centuries."""


class Memo(NamedTuple):
    """Instants are of the host's clock, the rest as `Demand`, `Terms` and `Usage` have it."""

    used: float
    """When somebody last asked for a token."""
    demand: float
    """Tokens per second, as they were `counted_at`."""
    counted_at: float
    last_want: float
    epoch: float
    level: float
    active_hosts: float
    round_trip: float
    heard: float
    """When the bucket last answered; -inf: never."""

    def pack(self) -> bytes:
        """Return it in 105 bytes, of which the garbage collector sees nothing: as a tuple of floats it had 336."""
        return _FORM.pack(*self)

    @classmethod
    def unpack(cls, packed: bytes) -> "Memo":
        """Return what was packed."""
        return cls(*_FORM.unpack(packed))

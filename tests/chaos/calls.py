"""What callers write down: one record a call, in a file that outlives its writer, were it killed."""

import os
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

_RECORD = struct.Struct("<ddBBBB")


class Outcome(IntEnum):
    """How a call ended for its caller."""

    REFUSED = 0
    ADMITTED = 1
    UNAVAILABLE = 2  # StoreUnavailable


class Source(IntEnum):
    """The source of the decision: Decision.source; try_acquire does not return it."""

    UNKNOWN = 0
    LOCAL = 1
    STORE = 2
    DENIED = 3
    FALLBACK = 4


class Call(NamedTuple):
    """One call: instants are seconds on the clock that all processes of a machine share."""

    before: float
    after: float
    key: int
    cost: int
    outcome: Outcome
    source: Source
    process: int

    @property
    def wait(self) -> float:
        """How long its caller waited (s)."""
        return self.after - self.before

    @property
    def failed(self) -> bool:
        """Whether the store had no part in it because it was away, as far as the caller was told."""
        return self.outcome is Outcome.UNAVAILABLE or self.source is Source.FALLBACK


class Notebook:
    """The file of one process. Each record is one write at its end, so many threads may share it."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, before: float, after: float, key: int, cost: int, outcome: Outcome, source: Source) -> None:
        """Write down one call."""
        os.write(self._file, _RECORD.pack(before, after, key, cost, outcome, source))

    def close(self) -> None:
        os.close(self._file)


def read(path: Path, process: int) -> Iterator[Call]:
    """All calls of the file of this process; none where there is no file."""
    text = path.read_bytes() if path.exists() else b""
    whole = len(text) - len(text) % _RECORD.size  # who is killed may leave half a record
    for before, after, key, cost, outcome, source in _RECORD.iter_unpack(text[:whole]):
        yield Call(before, after, key, cost, Outcome(outcome), Source(source), process)

"""What is measured: limiters and web fronts, each under a name."""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from batchlimit.events import tell
from batchlimit.telemetry.reading import Reading, Series, read


class Labelled(NamedTuple):
    """One series of one source.

    Attributes:
        series: the series.
        limiter: the name of its source.
    """

    series: Series
    limiter: str


class Sources:
    """Limiters and fronts that are read together; each is gone when nobody else has it any more."""

    def __init__(self) -> None:
        self._found: list[tuple[str, Callable[[], Any]]] = []
        self._told: set[str] = set()

    def __repr__(self) -> str:
        return f"<Sources {[name for name, _ in self._found]}>"

    def __len__(self) -> int:
        """How many sources there are, those included that were gone since the last reading."""
        return len(self._found)

    def add(self, name: str, source: Any) -> None:
        """Read this one too.

        Args:
            name: the value of its label "limiter". Sources of one name are added up.
            source: a limiter, or a web front: `statistics()` says what it counted.

        Raises:
            TypeError: it has no `statistics`.
        """
        if not callable(getattr(source, "statistics", None)):
            raise TypeError(f"{source!r} counts nothing: give a limiter, or a web front, which has statistics()")
        try:
            self._found.append((name, weakref.ref(source)))
        except TypeError:  # it cannot be referred to weakly
            self._found.append((name, lambda: source))

    def read(self) -> dict[Labelled, float]:
        """Return the value of each series now. A source that fails is left out, and the log says so once."""
        reading: dict[Labelled, float] = {}
        for name, find in list(self._found):
            if (source := find()) is None:
                self._found.remove((name, find))
                continue
            for series, value in self._read(name, source).items():
                labelled = Labelled(series, name)
                reading[labelled] = reading.get(labelled, 0) + value
        return reading

    def _read(self, name: str, source: Any) -> Reading:
        try:
            return read(source.statistics())
        except Exception as error:  # noqa: BLE001  the other sources are read
            if name not in self._told:
                self._told.add(name)
                message = "no metrics of %r: its statistics cannot be read"
                tell("telemetry.unread", message, name or source, error=error, limiter=name)
            return {}

"""What is measured: limiters and web fronts, each under a name."""

import os
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from batchlimit.events import tell
from batchlimit.histogram import Histogram
from batchlimit.telemetry.reading import Reading, Series, Value, read, total

_MERGE: dict[str, Callable[[Any, Any], Any]] = {"sum": total, "min": min, "max": max}


class Labelled(NamedTuple):
    """One series of one source.

    Attributes:
        series: the series.
        limiter: the name of its source.
    """

    series: Series
    limiter: str


class _Source:
    """One limiter or front, and the counters that were last read of it."""

    def __init__(self, name: str, find: Callable[[], Any]) -> None:
        self.name, self._find = name, find
        self._counted: Reading = {}

    def read(self) -> Reading | None:
        """Return its series now; None: nobody has it any more. No counter falls, but in a forked child.

        A limiter uncounts tokens that were taken too late to be spent. To Prometheus a counter that falls has begun
        anew, and all that it counts is an increase. So it stays where it was, until there is more.
        """
        if (source := self._find()) is None:
            return None
        found = read(source.statistics())
        for series, before in self._counted.items():
            found[series] = _not_less(before, found.get(series, before))
        self._counted = {series: value for series, value in found.items() if series.metric.kind != "gauge"}
        return found

    def forget(self) -> None:
        """Let counters begin anew."""
        self._counted = {}


def _not_less(before: Value, now: Value) -> Value:
    if isinstance(before, Histogram) or isinstance(now, Histogram):
        return now  # it never falls
    return max(before, now)


class Sources:
    """Limiters and fronts that are read together; each is gone when nobody else has it any more."""

    def __init__(self) -> None:
        self._found: list[_Source] = []
        self._told: set[str] = set()
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"<Sources {[each.name for each in self._found]}>"

    def __len__(self) -> int:
        """How many sources there are, those included that were gone since the last reading."""
        return len(self._found)

    def add(self, name: str, *sources: Any) -> None:
        """Read these too.

        Args:
            name: the value of their label "limiter". Sources of one name are one: most of their values are added up.
            sources: limiters, or web fronts: `statistics()` says what one counted.

        Raises:
            TypeError: one has no `statistics`.
        """
        for source in sources:
            self._add(name, source)

    def _add(self, name: str, source: Any) -> None:
        if not callable(getattr(source, "statistics", None)):
            raise TypeError(f"{source!r} counts nothing: give a limiter, or a web front, which has statistics()")
        try:
            self._found.append(_Source(name, weakref.ref(source)))
        except TypeError:  # it cannot be referred to weakly
            self._found.append(_Source(name, lambda: source))

    def read(self) -> dict[Labelled, Value]:
        """Return the value of each series now. A source that fails is left out, and the log says so once."""
        reading: dict[Labelled, Value] = {}
        self._begin_anew_after_fork()
        for source in list(self._found):
            if (found := self._read(source)) is None:
                self._found.remove(source)
                continue
            for series, value in found.items():
                labelled = Labelled(series, source.name)
                before = reading.get(labelled)
                reading[labelled] = value if before is None else _MERGE[series.metric.merge](before, value)
        return reading

    def _begin_anew_after_fork(self) -> None:
        """In the child limiters count from 0: what their parent counted is the parent's."""
        if self._process != os.getpid():
            self._process = os.getpid()
            for source in self._found:
                source.forget()

    def _read(self, source: _Source) -> Reading | None:
        try:
            return source.read()
        except Exception as error:  # noqa: BLE001  the other sources are read
            if source.name not in self._told:
                self._told.add(source.name)
                message = "no metrics of %r: its statistics cannot be read"
                tell("telemetry.unread", message, source.name or source, error=error, limiter=source.name)
            return {}

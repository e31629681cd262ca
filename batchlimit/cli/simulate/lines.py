"""Lines in order of time; those of one whole second are spread over it, since most logs tell no more than that."""

import math
from collections.abc import Iterable, Iterator

from batchlimit.cli.simulate.log import Line


def instants(lines: Iterable[Line]) -> Iterator[tuple[float, list[Line]]]:
    """Yield the lines of each instant.

    A line that is older than the one before it is taken as of the same instant: servers write when they have answered.
    """
    now, together = -math.inf, list[Line]()
    for line in lines:
        if line[0] > now:
            if together:
                yield now, together
            now, together = line[0], []
        together.append(line)
    if together:
        yield now, together


def pause(at: float, count: int) -> float:
    """Return the seconds between two of `count` lines of one instant: 0 unless the instant is a whole second."""
    return 1.0 / count if at == int(at) else 0.0

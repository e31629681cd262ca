"""What holders of permits wrote down, and what a replay of it shows."""

import os
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Hold:
    """One permit: from when to when its holder worked under it (ns of the machine's monotonic clock), and its token."""

    start: int
    end: int
    token: int = 0


class Log:
    """Writes down holds, so that a killed process leaves what it had begun. For all threads of a process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def start(self, number: int, now: int, token: int) -> None:
        os.write(self._file, f"S {number} {now} {token}\n".encode())

    def end(self, number: int, now: int) -> None:
        os.write(self._file, f"E {number} {now}\n".encode())


def read(path: Path, killed: int) -> Iterator[Hold]:
    """Yield what a process logged; what it had not ended was under way until it was killed."""
    begun: dict[str, tuple[int, int]] = {}
    for line in path.read_text().splitlines():
        match line.split():
            case ["S", number, start, token]:
                begun[number] = int(start), int(token)
            case ["E", number, end]:
                start_ns, token_ = begun.pop(number)
                yield Hold(start_ns, max(start_ns, int(end)), token_)
            case _:  # the last line of a killed process
                pass
    for start_ns, token_ in begun.values():
        yield Hold(start_ns, max(start_ns, killed), token_)


def most_at_once(holds: Iterable[Hold]) -> int:
    """Return how many holds overlapped at most. One that ends at an instant does not overlap one that begins then."""
    changes = sorted(change for hold in holds for change in ((hold.start, 1), (hold.end, -1)) if hold.end > hold.start)
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def used(holds: Iterable[Hold], limit: int, start: int, end: int) -> float:
    """Return the part of all slots that was in use between two instants."""
    return sum(max(0, min(each.end, end) - max(each.start, start)) for each in holds) / (limit * (end - start))


def handovers(holds: Iterable[Hold], limit: int) -> list[int]:
    """Return for how long each slot was free before somebody got it (ns), in order; not before its first holder."""
    changes = sorted(change for hold in holds for change in ((hold.start, 1), (hold.end, 0)))
    free: deque[int] = deque()
    gaps, unused = [], limit
    for instant, is_start in changes:
        if not is_start:
            free.append(instant)
        elif unused:
            unused -= 1
        elif free:
            gaps.append(instant - free.popleft())
    return sorted(gaps)


def longest_gap(holds: Iterable[Hold], after: int) -> int:
    """Return the longest time after an instant in which nobody began (ns)."""
    starts = sorted(each.start for each in holds)
    starts = [after, *starts[bisect_left(starts, after) :]]
    return max((b - a for a, b in pairwise(starts)), default=0)


def tokens_grow(holds: Iterable[Hold]) -> bool:
    """Whether who began later had the larger token: of a limit of one, each."""
    tokens = [each.token for each in sorted(holds, key=lambda each: each.start) if each.end > each.start]
    return all(a < b for a, b in pairwise(tokens))

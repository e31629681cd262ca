"""What a replay of all holds shows: how many overlapped, what was not used, when all slots were in use again."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

from benchmarks.shared_permits.log import Hold


def levels(holds: Iterable[Hold]) -> Iterator[tuple[int, int]]:
    """Yield each instant at which the number of holds changes, and the number from then on.

    A hold that ends at an instant does not overlap one that begins then.
    """
    changes = sorted(change for hold in holds for change in ((hold.start, 1), (hold.end, -1)) if hold.end > hold.start)
    return zip((instant for instant, _ in changes), accumulate(step for _, step in changes), strict=True)


def most_at_once(holds: Iterable[Hold]) -> int:
    """Return how many holds overlapped at most."""
    return max((level for _, level in levels(holds)), default=0)


def too_many_for(holds: Iterable[Hold], limit: int) -> int:
    """Return the time from the first instant at which there were more holds than that until the last one (ns)."""
    above = [(a, b) for (a, level), (b, _) in pairwise(levels(holds)) if level > limit]
    return above[-1][1] - above[0][0] if above else 0


def used(holds: Iterable[Hold], limit: int, start: int, end: int) -> float:
    """Return the part of all slots that was in use between two instants."""
    return sum(max(0, min(each.end, end) - max(each.start, start)) for each in holds) / (limit * (end - start))


def full_again(holds: Iterable[Hold], limit: int, after: int) -> int | None:
    """Return how long after an instant all slots were in use at once (ns); None: they never were."""
    changes = list(levels(holds))
    begun = max((number for number, (instant, _) in enumerate(changes) if instant <= after), default=0)
    full = (max(after, instant) for instant, level in changes[begun:] if level >= limit)
    found = next(full, None)
    return None if found is None else found - after


def longest_wait(holds: Iterable[Hold], after: int) -> int:
    """Return the longest that a caller had asked when it got a permit after an instant (ns)."""
    return max((each.wait for each in holds if each.start >= after), default=0)


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

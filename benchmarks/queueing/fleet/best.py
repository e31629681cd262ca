"""The best limiter with a queue: it knows how many workers there are, and who has waited for how long."""

import heapq
from collections.abc import Iterable, Iterator

from benchmarks.queueing.arrivals import Call
from benchmarks.queueing.fleet.scenario import FleetScenario

_PART = 0.5
"""Of the deadline that a caller may wait: the rest is for the service."""


def served(scenario: FleetScenario, calls: Iterable[Call]) -> Iterator[bool]:
    """Tell of each caller, in order of time, whether the best limiter has it answered in time.

    One line before all workers of all servers, first come first served. It admits whoever it can serve after half of
    the deadline. It does not know how long a call will take.
    """
    phases = list(scenario.phases)
    phase, free = phases.pop(0), [0] * (scenario.servers * scenario.workers)
    deadline = int(scenario.deadline * 1e9)
    for call in calls:
        while phases and call.came >= phases[0].since * 1e9:
            phase = phases.pop(0)
            _resize(free, scenario.servers * phase.workers, call.came)
        start = max(call.came, free[0])
        if start - call.came > _PART * deadline:
            yield False
            continue
        end = start + int(call.work * phase.slowness)
        heapq.heapreplace(free, end)
        yield end - call.came <= deadline


def _resize(free: list[int], workers: int, now: int) -> None:
    """Let workers come, or those go that are idle or idle soonest."""
    free.sort()
    if workers < len(free):
        del free[: len(free) - workers]
    else:
        free.extend([now] * (workers - len(free)))
    heapq.heapify(free)

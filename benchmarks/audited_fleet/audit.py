"""The audit: do the admissions that the callers logged keep the promise of one token bucket?

The promise, for every bandwidth (r tokens/s, burst b) and every pair of instants s <= t:

    admitted(s, t) <= b + r * (t - s)

Each caller saw its admission of c tokens happen between `before` and `after` its call, two readings of one clock. The
admission surely lies within [s, t] if s <= before and after <= t. For any other window nothing is sure. Hence

    excess = max over all s <= t of: the tokens surely admitted within [s, t] - b - r * (t - s), or 0

proves a violation if it is above 0, and finds every violation that the readings show. If before == after for all calls,
it is the largest debt of a full bucket that admitted all the same. (To place each admission in its interval "as early
as there are tokens" would report false violations. Example: b = r = 1, one admission somewhere in [0, 9], one at
exactly 0.5. Placed at 0, the first leaves half a token for the second; in truth both fit.)

The maximum is found without trying every window. Regard the bucket as a machine that works off r tokens/s. It starts on
an admission at `before`, and should finish it by the deadline `after` + b/r. Windows then are [s, t + b/r]. The work
due within one is what surely was admitted within [s, t]; it ends at least (work - r * (t + b/r - s)) / r late. Earliest
deadline first, with interruptions, keeps the largest lateness as small as any order can, which is the maximum over all
windows. So one sort and one heap are enough, and excess = r * lateness.

A late reading of the clock only widens an interval, so a slow machine never makes a correct limiter look wrong.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from batchlimit import Quota
from benchmarks.audited_fleet.instance import InstanceLog
from benchmarks.audited_fleet.plan import Plan

Admission = tuple[float, float, int]
"""(before, after, tokens): seconds on one clock, before <= after."""

# Tokens. Rounding errors of sums over a long log stay far below it, and no store counts such small amounts.
_ROUNDING = 1e-4


def excess(admissions: Iterable[Admission], quota: Quota) -> float:
    """Return by how many tokens, at most, a window surely broke a bandwidth of the quota; 0.0 if none did."""
    log = sorted(admissions)
    worst = max((_excess(log, part.rate, part.burst) for part in quota.bandwidths), default=0.0)
    return worst if worst > _ROUNDING else 0.0


def _excess(log: Sequence[Admission], rate: float, burst: int) -> float:
    if not log:
        return 0.0
    if rate == 0:
        return float(sum(tokens for _, _, tokens in log))
    # Lateness counts from `after` here; the b/r of every deadline is subtracted at the end.
    lateness = max(finished - after for finished, after in _finishes(log, rate))
    return max(0.0, lateness * rate - burst)


def _finishes(log: Sequence[Admission], rate: float) -> Iterator[tuple[float, float]]:
    """Yield when each admission of the sorted log is worked off, and its `after`, in seconds since the log began."""
    origin = log[0][0]  # seconds since boot have no digits to spare for the sums
    waiting: list[tuple[float, float]] = []  # a heap of (after, tokens left): the most urgent one first
    clock = 0.0
    for before, after, tokens in log:
        yield from _pump(waiting, rate, clock, before - origin)
        clock = before - origin
        heapq.heappush(waiting, (after - origin, float(tokens)))
    yield from _pump(waiting, rate, clock, math.inf)


def _pump(waiting: list[tuple[float, float]], rate: float, clock: float, until: float) -> Iterator[tuple[float, float]]:
    while waiting:
        urgent, rest = waiting[0]
        finish = clock + rest / rate
        if finish > until:
            # Interrupted. The rest is still the most urgent one, so the heap stays a heap.
            waiting[0] = (urgent, (finish - until) * rate)
            return
        clock = finish
        heapq.heappop(waiting)
        yield clock, urgent


def allowance(offered: Iterable[float], seconds: float, quota: Quota) -> float:
    """Return how many tokens an unbatched bucket, full at first, would admit of the demand in each spell.

    Tokens that are refilled within a spell may be spent from its beginning, which is the resolution.

    Args:
        offered: the tokens asked for in each spell.
        seconds: the length of a spell.
        quota: the bucket's quota.
    """
    parts, levels = quota.bandwidths, [float(part.burst) for part in quota.bandwidths]
    total = 0.0
    for tokens in offered:
        levels = [level + part.rate * seconds for level, part in zip(levels, parts, strict=True)]
        admitted = min(tokens, *levels)
        levels = [min(part.burst, level - admitted) for level, part in zip(levels, parts, strict=True)]
        total += admitted
    return total


def equals(plan: Plan) -> list[list[int]]:
    """Return the groups of two or more processes that have the same demand at the same times."""
    groups = defaultdict(list)
    for number in range(plan.processes):
        groups[plan.share(number), plan.stay(number)].append(number)
    return [group for group in groups.values() if len(group) > 1]


def jain(shares: Sequence[int]) -> float:
    """Return Jain's index: 1 is perfectly even, 1/n means one of n got everything; nan if nobody got anything."""
    return share(sum(shares) ** 2, len(shares) * sum(each**2 for each in shares))


def evenness(shares: Sequence[int]) -> float:
    """Return the least share divided by the largest."""
    return share(min(shares), max(shares))


def share(part: float, whole: float) -> float:
    """Return part / whole; nan if whole is 0."""
    return part / whole if whole else math.nan


def starvation(process: InstanceLog) -> float:
    """Return the longest run (seconds) of refusals without an admission, from its first call to the end of its last.

    A process that asks for nothing is not starved, so the time after the last refusal does not count. Nor does the part
    of a refused call before another caller's admission.
    """
    longest, began, admitted = 0.0, math.inf, -math.inf
    verdicts = chain(((call.after, False, call.before) for call in process.refused), _admitted(process))
    for after, was_admitted, before in sorted(verdicts):
        if was_admitted:
            began, admitted = math.inf, after
        else:
            began = min(began, max(before, admitted))
            longest = max(longest, after - began)
    return longest


def _admitted(process: InstanceLog) -> Iterator[tuple[float, bool, float]]:
    return ((call.after, True, call.before) for call in process.admitted)

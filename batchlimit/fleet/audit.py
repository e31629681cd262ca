"""The audit: did the admissions that the callers logged keep the promise of one token bucket?

The promise, for every bandwidth (r tokens/s, burst b) and every pair of instants s <= t:

    admitted(s, t) <= b + r * (t - s)

What can callers prove? Each saw one admission of c tokens between `before` and `after` its call, two readings of one
clock. It surely lies within [s, t] if s <= before and after <= t, and for no other window can anyone say so. Hence

    excess = max over all s <= t of: the tokens surely admitted within [s, t] - b - r * (t - s), or 0

is a proof of a violation wherever it is above 0, and by construction it finds every violation that the readings show.
Where the readings are points, it is the largest debt of a bucket that began full and admitted all the same. (Placing
each admission within its interval "as early as there are tokens" would accuse the innocent: b = r = 1, one admission
somewhere in [0, 9], one at exactly 0.5. Served at 0 the first leaves half a token for the second; both fit easily.)

How to find the maximum without trying every window? Think of the bucket as a pump of r tokens/s that starts on an
admission no sooner than `before` and is to be done b/r after `after`. Windows then are [s, t + b/r], the work that must
be done within one is what surely was admitted within [s, t], and it is late by (work - r * (t + b/r - s)) / r at the
least. Serving the earliest deadline first, interrupting for a more urgent arrival, makes the largest lateness as small
as any order can, which is the maximum of that over all windows. So: one sort, one heap, and excess = r * lateness.

A late reading of the clock can only widen an interval, so a slow machine never makes an honest limiter guilty.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from batchlimit import Quota
from batchlimit.fleet.instance import InstanceLog
from batchlimit.fleet.plan import Plan

Admission = tuple[float, float, int]
"""(before, after, tokens): seconds on one clock, before <= after."""

# Tokens. Rounding errors of the sums over a long log stay far below; no store counts in such small change.
_ROUNDING = 1e-4


def excess(admissions: Iterable[Admission], quota: Quota) -> float:
    """The most tokens by which any window surely broke any bandwidth of the quota; 0.0 if the promise was kept."""
    log = sorted(admissions)
    worst = max((_excess(log, part.rate, part.burst) for part in quota.bandwidths), default=0.0)
    return worst if worst > _ROUNDING else 0.0


def _excess(log: Sequence[Admission], rate: float, burst: int) -> float:
    if not log:
        return 0.0
    if rate == 0:
        return float(sum(tokens for _, _, tokens in log))
    # Lateness is against `after` itself here; the b/r that every deadline has on top is taken off at the end.
    lateness = max(finished - after for finished, after in _finishes(log, rate))
    return max(0.0, lateness * rate - burst)


def _finishes(log: Sequence[Admission], rate: float) -> Iterator[tuple[float, float]]:
    """When the pump is done with each admission of the sorted log, and its `after`, in seconds since the log began."""
    origin = log[0][0]  # seconds since boot have no digits to spare for the sums
    waiting: list[tuple[float, float]] = []  # a heap of (after, tokens still to pump): the most urgent one first
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
            # Interrupted. What is left of the most urgent one leaves it the most urgent: the heap stays a heap.
            waiting[0] = (urgent, (finish - until) * rate)
            return
        clock = finish
        heapq.heappop(waiting)
        yield clock, urgent


def allowance(offered: Iterable[float], seconds: float, quota: Quota) -> float:
    """The tokens that an unbatched bucket, full at first, would admit of what was offered in each spell of `seconds`.

    To the resolution of a spell: what flows in during one may be spent at once.
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
    """The hosts that want the same at the same times, where there is more than one."""
    groups = defaultdict(list)
    for host in range(plan.hosts):
        groups[plan.share(host), plan.stay(host)].append(host)
    return [group for group in groups.values() if len(group) > 1]


def jain(shares: Sequence[int]) -> float:
    """Jain's index: 1 is perfectly even, 1/n is all for one of n; nan where nobody got anything."""
    return share(sum(shares) ** 2, len(shares) * sum(each**2 for each in shares))


def evenness(shares: Sequence[int]) -> float:
    """The poorest one's tokens by the richest one's."""
    return share(min(shares), max(shares))


def share(part: float, whole: float) -> float:
    """Part by whole; nan where there is no whole."""
    return part / whole if whole else math.nan


def starvation(host: InstanceLog) -> float:
    """The longest run of refusals without an admission between them, from its first call to the end of its last (s).

    A host that asks for nothing is not starved, so what follows the last refusal does not count; nor does the time of
    a refused call before the admission of another.
    """
    longest, began, admitted = 0.0, math.inf, -math.inf
    verdicts = chain(((call.after, False, call.before) for call in host.refused), _admitted(host))
    for after, was_admitted, before in sorted(verdicts):
        if was_admitted:
            began, admitted = math.inf, after
        else:
            began = min(began, max(before, admitted))
            longest = max(longest, after - began)
    return longest


def _admitted(host: InstanceLog) -> Iterator[tuple[float, bool, float]]:
    return ((call.after, True, call.before) for call in host.admitted)

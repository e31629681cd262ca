"""How evenly hosts were served: what those of equal demand got, and how long one went without."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

from batchlimit.cli.host import HostLog
from batchlimit.cli.plan import Plan


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


def starvation(host: HostLog) -> float:
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


def _admitted(host: HostLog) -> Iterator[tuple[float, bool, float]]:
    return ((call.after, True, call.before) for call in host.admitted)

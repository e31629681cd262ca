"""How evenly hosts were served: what those of equal demand got, and how long one went without."""

import math
from collections import defaultdict
from collections.abc import Sequence
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

    A host that asks for nothing is not starved, so what follows the last refusal does not count.
    """
    longest, began = 0.0, math.inf
    refusals = ((call.before, False, call.after) for call in host.refused)
    for before, was_admitted, after in sorted(chain(refusals, ((call.before, True, 0.0) for call in host.admitted))):
        began = math.inf if was_admitted else min(began, before)
        longest = max(longest, after - began)
    return longest

"""What a scenario showed: one row of the table, from what the callers wrote down."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from batchlimit import Quota
from benchmarks.audited_fleet.audit import excess
from tests.chaos.calls import Call, Outcome, Source
from tests.chaos.scenario import KEYS, QUOTA, Scenario
from tests.chaos.task import Ended, Usage

STEADY = 0.25
"""A process that was served for so long (s) has recovered; that the machine stalls later on is another story."""


@dataclass(frozen=True, slots=True)
class Times:
    """When a fault began and when it was over (monotonic clock, seconds)."""

    began: float
    over: float


@dataclass(frozen=True, slots=True)
class Row:
    """One run of a scenario. Counts are of tokens, but for errors and calls; times are seconds."""

    scenario: Scenario
    seconds: float
    """How long the fault lasted in truth."""
    calls: int
    p99: float
    """Waits of callers whose calls fell into the fault."""
    longest: float
    """The same, or after it."""
    stalled: float
    """For how long the machine stood still at the most, all of it or one process.

    The longest time in which no caller of any process wrote anything down, or what a process's Witness saw.
    """
    admitted: int
    """From the beginning of the fault to its end, as all the following."""
    refused: int
    unavailable: int
    """Calls that raised StoreUnavailable."""
    fallback: int
    """Tokens admitted without the store, as far as callers were told so."""
    share: float
    """Tokens admitted, as a share of the refill meanwhile."""
    excess: float
    """The most that any key's windows show on top of the promise, before, during and after."""
    recovery: float
    """From the end of the fault until the last process admitted again by its leases, and went on; inf: never."""
    errors: tuple[str, ...]
    """Errors that should not be, in words."""
    outages: int
    losses: int
    """What the processes say: times that they gave the store up; buckets that were lost."""
    usage: tuple[Usage, ...]
    """What each process took in the end."""

    @property
    def kept(self) -> bool:
        """Whether nothing went wrong that is not part of the fault."""
        return not self.errors and self.recovery < math.inf and self.within_bounds

    @property
    def within_bounds(self) -> bool:
        """Whether as much was admitted as the scenario allows, and nobody waited for ever, but for the machine."""
        scenario = self.scenario
        most = scenario.most(self.seconds)
        return (
            self.excess <= scenario.excess(self.stalled)
            and self.admitted <= most
            and self.longest <= scenario.longest(self.stalled)
        )


def row(scenario: Scenario, calls: Sequence[Call], times: Times, ended: Iterable[Ended]) -> Row:
    """Draw it up."""
    heard = list(ended)
    during = [call for call in calls if times.began < call.after and call.before < times.over]
    waits = sorted(call.wait for call in during)
    admitted = _tokens(call for call in during if call.outcome is Outcome.ADMITTED)
    return Row(
        scenario=scenario,
        seconds=times.over - times.began,
        calls=len(calls),
        p99=waits[int(len(waits) * 0.99)] if waits else math.nan,
        longest=max((call.wait for call in calls if times.began < call.after), default=math.nan),
        stalled=max(_stalled(calls), *(each.stalled for each in heard), 0.0),
        admitted=admitted,
        refused=_tokens(call for call in during if call.outcome is Outcome.REFUSED),
        unavailable=sum(call.outcome is Outcome.UNAVAILABLE for call in during),
        fallback=_tokens(
            call for call in during if call.source is Source.FALLBACK and call.outcome is Outcome.ADMITTED
        ),
        share=admitted / (scenario.rate * (times.over - times.began)),
        excess=max(_excess(calls, key) for key in range(KEYS)),
        recovery=recovery(calls, times.over),
        errors=tuple(error for each in heard for error in each.errors),
        outages=sum(each.statistics.outages for each in heard),
        losses=sum(each.statistics.losses for each in heard),
        usage=tuple(each.usage for each in heard),
    )


def _stalled(calls: Iterable[Call]) -> float:
    written = sorted(call.after for call in calls)
    return max((after - before for before, after in pairwise(written)), default=0.0)


def _tokens(calls: Iterable[Call]) -> int:
    return sum(call.cost for call in calls)


def _excess(calls: Sequence[Call], key: int) -> float:
    admitted = (
        (call.before, call.after, call.cost) for call in calls if call.outcome is Outcome.ADMITTED and call.key == key
    )
    return excess(admitted, Quota.parse(QUOTA))


def recovery(calls: Sequence[Call], over: float) -> float:
    """Return how long after the end of a fault the last process was served by its leases again; inf: never."""
    return max((_recovery(calls, process, over) for process in {call.process for call in calls}), default=math.inf)


def _recovery(calls: Sequence[Call], process: int, over: float) -> float:
    own = sorted(
        (call for call in calls if call.process == process and call.after >= over), key=lambda call: call.after
    )
    if not own:  # it was killed
        return 0.0
    served = math.inf
    for call in own:
        if call.after - served > STEADY:
            break
        if call.failed:
            served = math.inf
        elif call.source in (Source.LOCAL, Source.STORE) and call.outcome is Outcome.ADMITTED:
            served = min(served, call.after)
    return served - over

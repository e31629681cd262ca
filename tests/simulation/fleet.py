"""A plan carried out in virtual time, by instances whose threads call as those of real processes do: the same report.

What takes no time here: a decision from memory, the server's work, the waking of a thread. A round trip takes what it
is told to. So calls, excess, use and fairness can be compared with those of real fleets; latencies cannot.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, pairwise
from random import Random
from typing import Protocol

from batchlimit.quota.quota import Quota
from benchmarks.audited_fleet.caller import SPELL, CallLog
from benchmarks.audited_fleet.fleet import FleetLog
from benchmarks.audited_fleet.instance import InstanceLog
from benchmarks.audited_fleet.plan import Plan
from benchmarks.audited_fleet.report import Report, report
from benchmarks.audited_fleet.server import Work
from tests.simulation.agenda import SECOND, Agenda
from tests.simulation.instance import Process, Witness
from tests.simulation.limiter import Limiter
from tests.simulation.network import Post, undisturbed
from tests.simulation.server import Server

TICK = 1000
"""A thread wakes once in so many us at most, and then makes every call that is due."""

Spell = Callable[[float, float], Iterator[float]]
"""Yields when (s) calls come that come at a rate (1/s), for so many seconds."""
Arrivals = Callable[[Random], Spell]
"""How the calls of one thread come, by its dice."""


def evenly(dice: Random) -> Spell:
    """Have the calls of one thread come at even intervals, which begin at random."""
    offset = dice.random()
    return lambda rate, seconds: ((n + 1 - offset) / rate for n in range(int(seconds * rate + offset)))


def at_random(dice: Random) -> Spell:
    """Have calls come as they will, none of which knows of the others: a Poisson process."""

    def spell(rate: float, seconds: float) -> Iterator[float]:
        at = dice.expovariate(rate)
        while at < seconds:
            yield at
            at += dice.expovariate(rate)

    return spell


Verdict = Callable[[bool, bool], None]
"""Hears whether a call was admitted, and whether it waited for the store."""


class SimulatedLimiter(Protocol):
    """One instance's limiter in virtual time."""

    @property
    def calls(self) -> int:
        """Requests to the store."""
        ...

    def decide(self, cost: int, then: Verdict) -> None:
        """Decide on one call, now or when the store has answered."""
        ...

    def crash(self) -> None:
        """Vanish."""
        ...


Maker = Callable[[Agenda, Plan, float], Callable[[int], SimulatedLimiter]]
"""For a world, a plan and a round trip (s): what makes the limiter of each instance. They share one store."""


def simulate(plan: Plan, make: Maker, round_trip: float, arrivals: Arrivals = evenly) -> Report:
    """Carry the plan out, and draw up the report that a real fleet would get; calls come evenly, unless said."""
    logs = carried_out(plan, make, round_trip, arrivals)
    return report(plan, FleetLog(0.0, logs), Work(sum(log.calls for log in logs), 0.0), f"simulated, {round_trip:g} s")


def carried_out(plan: Plan, make: Maker, round_trip: float, arrivals: Arrivals) -> list[InstanceLog]:
    """Carry the plan out, and return what was logged: a report looks at each hundredth of a second."""
    agenda = Agenda()
    new_limiter = make(agenda, plan, round_trip)
    instances = [SimulatedInstance(agenda, plan, instance, new_limiter, arrivals) for instance in range(plan.processes)]
    agenda.run(round(plan.seconds * SECOND))
    return [instance.log() for instance in instances]


class SimulatedInstance:
    """One instance of the plan: it joins, its threads call, and perhaps it vanishes."""

    def __init__(
        self,
        agenda: Agenda,
        plan: Plan,
        number: int,
        new_limiter: Callable[[int], SimulatedLimiter],
        arrivals: Arrivals,
    ) -> None:
        self.admitted, self.refused = CallLog(), CallLog()
        self.offered = array("q", bytes(8 * (int(plan.seconds / SPELL) + 1)))
        self._agenda, self._plan, self._number, self._new_limiter = agenda, plan, number, new_limiter
        self._arrivals = arrivals
        self._limiter: SimulatedLimiter | None = None
        joins, leaves = plan.stay(number)
        agenda.at(round(joins * SECOND), self._join)
        if plan.vanishes(number):
            agenda.at(round(leaves * SECOND), self._vanish)

    def log(self) -> InstanceLog:
        calls = self._limiter.calls if self._limiter else 0
        return InstanceLog(self.admitted, self.refused, self.offered, self._plan.stay(self._number)[1], calls)

    def _join(self) -> None:
        self._limiter = self._new_limiter(self._number)
        for thread in range(self._plan.threads):
            dice = Random(f"{self._plan.seed} {self._number * self._plan.threads + thread}")
            due = _schedule(self._plan, self._number, self._arrivals(dice))
            Thread(self, self._agenda, self._limiter, due, dice.sample(self._plan.costs, len(self._plan.costs)))

    def _vanish(self) -> None:
        if self._limiter is not None:
            self._limiter.crash()


class Thread:
    """One thread: every call at its time, one after the other; while it waits for the store the next ones are late."""

    def __init__(
        self,
        instance: SimulatedInstance,
        agenda: Agenda,
        limiter: SimulatedLimiter,
        due: Iterator[int],
        costs: Sequence[int],
    ) -> None:
        """Its calls are `due` at these instants (us), and cost so much by turns."""
        self._instance, self._agenda, self._limiter = instance, agenda, limiter
        self._due, self._costs = due, cycle(costs)
        self._next = next(self._due, None)
        self._sleep()

    def _sleep(self) -> None:
        if self._next is not None:
            self._agenda.at(max(self._next, self._agenda.now + TICK), self._wake)

    def _wake(self) -> None:
        while self._next is not None and self._next <= self._agenda.now:
            self._next = next(self._due, None)
            if not self._call(next(self._costs)):
                return  # it goes on when the store has answered
        self._sleep()

    def _call(self, cost: int) -> bool:
        """Make one call; return whether it was decided at once."""
        before, decided, slept = self._agenda.now / SECOND, False, False
        self._instance.offered[int(before / SPELL)] += cost

        def then(admitted: bool, waited: bool) -> None:
            nonlocal decided
            decided = True
            log = self._instance.admitted if admitted else self._instance.refused
            log.add(before, self._agenda.now / SECOND, cost, waited)
            if slept:
                self._wake()

        self._limiter.decide(cost, then)
        slept = True
        return decided


def _schedule(plan: Plan, instance: int, spell: Spell) -> Iterator[int]:
    """When (us) each call of one thread is due."""
    joins, leaves = plan.stay(instance)
    for phase, (begin, end) in zip(plan.phases, pairwise([0.0, *plan.ends]), strict=True):
        first, last = max(begin, joins), min(end, leaves)
        rate = phase.rate * plan.share(instance) / plan.threads
        if rate > 0.0:
            yield from (round((first + each) * SECOND) for each in spell(rate, last - first))


class OursInVirtualTime:
    """An instance with the real rules."""

    def __init__(self, agenda: Agenda, instance: Process) -> None:
        self._agenda, self._instance = agenda, instance

    @property
    def calls(self) -> int:
        return self._instance.calls

    def decide(self, cost: int, then: Verdict) -> None:
        began = self._agenda.now
        self._instance.call(cost, then=lambda admitted: then(admitted, self._agenda.now > began))

    def crash(self) -> None:
        self._instance.crash()


def ours(agenda: Agenda, plan: Plan, round_trip: float) -> Callable[[int], SimulatedLimiter]:
    """The limiter of this package, around one bucket."""
    server, quota = Server(agenda), Quota.parse(plan.quota)
    post = Post(agenda, undisturbed(round_trip), timeout=1.0)
    return lambda number: OursInVirtualTime(
        agenda, Limiter(f"instance-{number}", quota, agenda, server, post, Witness())
    )

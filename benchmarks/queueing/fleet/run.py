"""One scenario of many limiters under one law, event by event. Each limiter is a real Gate with a law of its own."""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from itertools import count

from batchlimit.concurrency.gate import Gate
from batchlimit.concurrency.law import Law, Sample
from batchlimit.concurrency.queue import GateWaiter
from benchmarks.queueing.arrivals import Call
from benchmarks.queueing.fleet.best import served
from benchmarks.queueing.fleet.callers import callers
from benchmarks.queueing.fleet.scenario import FleetScenario, Member
from benchmarks.queueing.fleet.tally import FleetFigures, FleetTally

Watch = Callable[[int, Sequence[int]], None]
"""Told each fifth of a second: now (ns), and the limit of each limiter; 0 of those that are absent."""

_LOOK = 200_000_000


class _Event(IntEnum):
    OVER = 0
    COME = 1
    GIVE_UP = 2
    PHASE = 3
    LOOK = 4


def _nothing() -> None:
    pass


class _Backend:
    """How many are served, and who stands in line."""

    __slots__ = ("busy", "line")

    def __init__(self) -> None:
        self.busy = 0
        self.line: deque[tuple[Call, _Limiter]] = deque()


class _Limiter:
    """A gate, its law, and callers that wait there."""

    __slots__ = ("backend", "gate", "law", "member", "place", "skew", "waiting")

    def __init__(self, place: int, member: Member, law: Law, scenario: FleetScenario, backend: _Backend) -> None:
        self.place, self.member, self.law, self.backend = place, member, law, backend
        self.skew = int(member.skew * 1e9)
        self.gate = Gate(law.limit, None, scenario.queue)
        self.waiting: dict[GateWaiter, Call] = {}

    def is_present(self, now: int) -> bool:
        return self.member.joins * 1e9 <= now < self.member.leaves * 1e9


class FleetRun:
    """Callers that find no room wait in the queue of their limiter, and give up when it lets them wait no longer."""

    def __init__(
        self, scenario: FleetScenario, law: Callable[[FleetScenario], Law], seed: int, watch: Watch | None = None
    ) -> None:
        self._scenario, self._watch = scenario, watch
        self._backends = [_Backend() for _ in range(scenario.servers)]
        self._limiters = [
            _Limiter(place, each, law(scenario), scenario, self._backends[place % scenario.servers])
            for place, each in enumerate(scenario.members)
        ]
        self._phases = list(scenario.phases)
        phase = self._phases.pop(0)
        self._workers, self._slowness = phase.workers, phase.slowness
        self._tally = FleetTally(scenario)
        self._callers = callers(scenario, seed)
        self._best = iter(served(scenario, (call for call, _ in callers(scenario, seed))))
        self._agenda: list[tuple[int, int, _Event, Call | None, _Limiter | None, GateWaiter | None]] = []
        self._order = count()
        self._patience = int((scenario.queue.max_wait or 0) * 1e9)
        self._gate_waits = scenario.queue.length > 0

    def figures(self) -> FleetFigures:
        """Run to the end, and tell."""
        for phase in self._phases:
            self._plan(int(phase.since * 1e9), _Event.PHASE)
        self._plan(_LOOK, _Event.LOOK)
        self._next()
        end, agenda = int(self._scenario.seconds * 1e9), self._agenda
        while agenda and agenda[0][0] < end:
            now, _, event, call, limiter, waiter = heapq.heappop(agenda)
            if event is _Event.OVER and call is not None and limiter is not None:
                self._finish(now, call, limiter)
            elif event is _Event.COME and call is not None and limiter is not None:
                self._come(now, call, limiter)
            elif event is _Event.GIVE_UP and limiter is not None and waiter is not None:
                self._give_up(limiter, waiter)
            elif event is _Event.PHASE:
                self._change(now)
            else:
                self._look(now)
        return self._tally.figures()

    def _plan(
        self, at: int, event: _Event, call: Call | None = None, limiter: _Limiter | None = None,
        waiter: GateWaiter | None = None,
    ) -> None:  # fmt: skip
        heapq.heappush(self._agenda, (at, next(self._order), event, call, limiter, waiter))

    def _next(self) -> None:
        if (found := next(self._callers, None)) is not None:
            self._plan(found[0].came, _Event.COME, found[0], self._limiters[found[1]])

    def _come(self, now: int, call: Call, limiter: _Limiter) -> None:
        self._next()
        self._tally.come(now, next(self._best))
        for each in self._asked(limiter):
            if each.gate.enter(each.gate.rest, now):
                self._admit(now, each.gate.in_flight, call, each)
                return
        if self._gate_waits:
            self._wait(now, call, limiter)
        else:
            self._tally.refuse(now)

    def _asked(self, first: _Limiter) -> Iterator[_Limiter]:
        """The limiters that a caller asks: those at the next places after its own."""
        for more in range(self._scenario.tries):
            yield self._limiters[(first.place + more) % len(self._limiters)]

    def _wait(self, now: int, call: Call, limiter: _Limiter) -> None:
        waiter = GateWaiter(_nothing)
        if limiter.gate.line_up(limiter.gate.rest, waiter):
            self._tally.refuse(now)
            return
        limiter.waiting[waiter] = call
        self._plan(now + self._patience, _Event.GIVE_UP, None, limiter, waiter)

    def _give_up(self, limiter: _Limiter, waiter: GateWaiter) -> None:
        if waiter in limiter.waiting:
            limiter.gate.give_up(waiter)
            self._tally.refuse(limiter.waiting.pop(waiter).came)

    def _admit(self, now: int, in_flight: int, call: Call, limiter: _Limiter) -> None:
        call.admitted, call.in_flight = now, in_flight
        if limiter.backend.busy < self._workers:
            self._serve(now, call, limiter)
        else:
            limiter.backend.line.append((call, limiter))

    def _serve(self, now: int, call: Call, limiter: _Limiter) -> None:
        limiter.backend.busy += 1
        self._plan(now + int(call.work * self._slowness), _Event.OVER, call, limiter)

    def _serve_line(self, now: int, backend: _Backend) -> None:
        while backend.line and backend.busy < self._workers:
            self._serve(now, *backend.line.popleft())

    def _finish(self, now: int, call: Call, limiter: _Limiter) -> None:
        limiter.backend.busy -= 1
        self._serve_line(now, limiter.backend)
        gate, start = limiter.gate, call.admitted + limiter.skew
        # A caller whose deadline has passed does not say so: the law sees a slow call, not a dropped one.
        limit = limiter.law.update(Sample(start, now - call.admitted, call.in_flight, False, call.operation))
        gate.leave(gate.rest, now)
        gate.resize(limit, now)
        while gate.behind:
            gate.serve(now)
        for waiter in list(gate.unwoken):
            self._admit(now, waiter.in_flight, limiter.waiting.pop(waiter), limiter)
        gate.unwoken.clear()
        self._tally.answer(call.came, now, limiter.place)

    def _change(self, now: int) -> None:
        phase = self._phases.pop(0)
        self._workers, self._slowness = phase.workers, phase.slowness
        for each in self._backends:
            self._serve_line(now, each)

    def _look(self, now: int) -> None:
        self._plan(now + _LOOK, _Event.LOOK)
        limits = self._limits(now)
        self._tally.look(now, sum(limits))
        if self._watch is not None:
            self._watch(now, limits)

    def _limits(self, now: int) -> list[int]:
        return [each.gate.limit if each.is_present(now) else 0 for each in self._limiters]

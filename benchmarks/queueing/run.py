"""One scenario under one law, event by event."""

import heapq
from collections.abc import Callable
from enum import IntEnum
from itertools import count
from random import Random

from batchlimit.concurrency.law import Law, Sample
from benchmarks.queueing.arrivals import Call, arrivals
from benchmarks.queueing.scenario import Scenario
from benchmarks.queueing.server import Server
from benchmarks.queueing.tally import Figures, Tally

Watch = Callable[[int, int, int, bool], None]
"""Told of each call that ends: now (ns), the limit, calls under way, whether it was answered in time."""


class _Event(IntEnum):
    OVER = 0
    TRY = 1
    PHASE = 2


class Run:
    """Admits a call while fewer are under way than the law's limit, and turns others away at once; no line there."""

    def __init__(self, scenario: Scenario, law: Law, seed: int, watch: Watch | None = None) -> None:
        self._scenario, self._law, self._watch = scenario, law, watch
        self._phases = list(scenario.phases)
        self._phase = self._phases[0]
        self._server = Server(self._phase, scenario.stalls)
        self._tally = Tally(scenario)
        self._arrivals = arrivals(scenario, seed)
        self._backoff = Random(f"backoff {scenario.letter} {seed}")
        self._agenda: list[tuple[int, int, _Event, Call | None]] = []
        self._order = count()
        self._from = int(scenario.measured * 1e9)
        self._limit, self._in_flight = law.limit, 0

    def figures(self) -> Figures:
        """Run to the end, and tell."""
        for phase in self._phases[1:]:
            self._plan(int(phase.since * 1e9), _Event.PHASE)
        self._next_arrival()
        end = int(self._scenario.seconds * 1e9)
        while self._agenda and self._agenda[0][0] < end:
            now, _, event, call = heapq.heappop(self._agenda)
            if event is _Event.PHASE or call is None:
                self._change()
            elif event is _Event.OVER:
                self._finish(call, now)
            else:
                self._try(call, now)
            while (begun := self._server.begin(now)) is not None:
                self._plan(begun[0], _Event.OVER, begun[1])
        return self._tally.figures()

    def _plan(self, at: int, event: _Event, call: Call | None = None) -> None:
        heapq.heappush(self._agenda, (at, next(self._order), event, call))

    def _next_arrival(self) -> None:
        if (call := next(self._arrivals, None)) is not None:
            self._plan(call.came, _Event.TRY, call)

    def _change(self) -> None:
        self._phases.pop(0)
        self._phase = self._phases[0]
        self._server.workers, self._server.slowness = self._phase.workers, self._phase.slowness

    def _try(self, call: Call, now: int) -> None:
        if call.tries == 0:
            self._next_arrival()
            if now >= self._from:
                self._tally.come(self._phase)
        if self._in_flight < self._limit:
            self._in_flight += 1
            call.admitted, call.in_flight = now, self._in_flight
            self._server.enter(call)
        elif call.tries < self._scenario.retries:
            call.tries += 1
            self._plan(now + int(self._backoff.uniform(0.05, 0.15) * 1e9), _Event.TRY, call)
        elif now >= self._from:
            self._tally.reject(self._phase)

    def _finish(self, call: Call, now: int) -> None:
        self._server.busy -= 1
        self._in_flight -= 1
        rtt = now - call.admitted
        # A caller whose deadline has passed does not say so: the law sees a slow call, not a dropped one.
        self._limit = self._law.update(Sample(call.admitted, rtt, call.in_flight, False, call.operation))
        if now >= self._from:
            self._tally.answer(rtt, now - call.came)
        if self._watch is not None:
            in_time = now - call.came <= self._scenario.deadline * 1e9
            self._watch(now, self._limit, self._in_flight, in_time)

"""Many limiters whose limits make one: the fleet's N is the sum of what their laws find, and any of them may use it."""

from collections.abc import Callable
from dataclasses import replace

from batchlimit.concurrency.gate import Gate
from batchlimit.concurrency.law import Law, Sample
from benchmarks.queueing.arrivals import Call
from benchmarks.queueing.fleet.run import FleetRun, Watch, _Limiter
from benchmarks.queueing.fleet.scenario import FleetScenario


class PooledRun(FleetRun):
    """As FleetRun, with one gate for all. It is better than any store: a change of N reaches all at once."""

    def __init__(
        self, scenario: FleetScenario, law: Callable[[FleetScenario], Law], seed: int, watch: Watch | None = None
    ) -> None:
        super().__init__(scenario, law, seed, watch)
        queue = replace(scenario.queue, length=scenario.queue.length * len(scenario.members))
        self._pool = Gate(self._sum(0), None, queue)
        self._own = [0] * len(scenario.members)
        for each in self._limiters:
            each.gate = self._pool

    def _sum(self, now: int) -> int:
        return max(1, sum(each.law.limit for each in self._limiters if each.is_present(now)))

    def _admit(self, now: int, in_flight: int, call: Call, limiter: _Limiter) -> None:
        self._own[limiter.place] += 1
        super()._admit(now, self._own[limiter.place], call, limiter)  # a law sees the calls of its own limiter only

    def _finish(self, now: int, call: Call, limiter: _Limiter) -> None:
        limiter.backend.busy -= 1
        self._own[limiter.place] -= 1
        self._serve_line(now, limiter.backend)
        start, pool = call.admitted + limiter.skew, self._pool
        limiter.law.update(Sample(start, now - call.admitted, call.in_flight, False, call.operation))
        pool.leave(pool.rest, now)
        pool.resize(self._sum(now), now)
        while pool.behind:
            pool.serve(now)
        for waiter in list(pool.unwoken):
            owner = next(each for each in self._limiters if waiter in each.waiting)
            self._admit(now, 0, owner.waiting.pop(waiter), owner)
        pool.unwoken.clear()
        self._tally.answer(call.came, now, limiter.place)

    def _limits(self, now: int) -> list[int]:
        return [each.law.limit if each.is_present(now) else 0 for each in self._limiters]

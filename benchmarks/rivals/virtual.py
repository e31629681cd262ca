"""A rival in virtual time: as its driver runs it for real, one request at a time and first come first served."""

from collections import deque
from collections.abc import Callable

from batchlimit import Quota
from benchmarks.audited_fleet.plan import Plan
from benchmarks.rivals.bucket import PlainBucket
from benchmarks.rivals.request import Course, Request, Rival
from tests.simulation.agenda import SECOND, Agenda
from tests.simulation.fleet import SimulatedLimiter, Verdict
from tests.simulation.network import Post, undisturbed


class VirtualDriver:
    """One instance's rival; a SimulatedLimiter."""

    def __init__(self, rival: Rival, name: str, agenda: Agenda, post: Post, bucket: PlainBucket) -> None:
        self.calls = 0
        self._rival, self._name, self._agenda, self._post, self._bucket = rival, name, agenda, post, bucket
        self._line: deque[Callable[[], None]] = deque()
        self._busy = self._gone = False
        if rival.period is not None:
            self._plan_round(rival.period)

    def decide(self, cost: int, then: Verdict) -> None:
        course = Course(self._rival.admit(cost, self._now))
        if course.request is None:
            then(course.verdict, False)
        elif self._rival.single:
            self._queue(lambda: self._carry_out(Course(self._rival.admit(cost, self._now)), then))
        else:
            self._send(course, lambda: then(course.verdict, True))

    def crash(self) -> None:
        self._gone = True

    @property
    def _now(self) -> float:
        return self._agenda.now / SECOND

    def _queue(self, begin: Callable[[], None]) -> None:
        self._line.append(begin)
        self._next()

    def _next(self) -> None:
        """Let whoever is next begin, as long as nothing is under way."""
        while self._line and not self._busy:
            self._line.popleft()()

    def _carry_out(self, course: Course[bool], then: Verdict) -> None:
        if course.request is None:
            then(course.verdict, True)
            return
        self._busy = True
        self._send(course, lambda: self._end(lambda: then(course.verdict, True)))

    def _end(self, tell: Callable[[], None]) -> None:
        self._busy = False
        tell()
        self._next()

    def _send(self, course: Course[bool] | Course[None], over: Callable[[], None]) -> None:
        request = course.request
        assert request is not None
        self.calls += 1
        self._post.send(self._name, lambda: self._answer(request), lambda reply: self._go_on(course, reply, over), over)

    def _answer(self, request: Request) -> int:
        return self._bucket.take(request, self._now)

    def _go_on(self, course: Course[bool] | Course[None], reply: int, over: Callable[[], None]) -> None:
        if self._gone:
            return
        course.answer(reply)
        if course.request is None:
            over()
        else:
            self._send(course, over)

    def _plan_round(self, period: float) -> None:
        def go_round() -> None:
            if not self._gone:
                self._queue(self._round)
                self._plan_round(period)

        self._agenda.after(period, go_round)

    def _round(self) -> None:
        course = Course(self._rival.background(self._now))
        if course.request is not None:
            self._busy = True
            self._send(course, lambda: self._end(lambda: None))


def virtual(new_rival: Callable[[Quota], Rival]) -> Callable[[Agenda, Plan, float], Callable[[int], SimulatedLimiter]]:
    """Return what `simulate` takes to have every instance of a plan limited by this rival, around one plain bucket."""

    def make(agenda: Agenda, plan: Plan, round_trip: float) -> Callable[[int], SimulatedLimiter]:
        quota = Quota.parse(plan.quota)
        post, bucket = Post(agenda, undisturbed(round_trip), timeout=1.0), PlainBucket(quota.rate, quota.burst)
        return lambda number: VirtualDriver(new_rival(quota), f"instance-{number}", agenda, post, bucket)

    return make

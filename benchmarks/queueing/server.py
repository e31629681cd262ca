"""Workers that serve a line, first come first served, in virtual time."""

from collections import deque

from benchmarks.queueing.arrivals import Call
from benchmarks.queueing.scenario import Phase, Stalls


class Server:
    """So many workers, so slow each, and who waits for them. Tells when a call that begins will be over."""

    __slots__ = ("_every", "_length", "_waiting", "busy", "slowness", "workers")

    def __init__(self, phase: Phase, stalls: Stalls | None) -> None:
        self._every, self._length = (0, 0) if stalls is None else (int(stalls.every * 1e9), int(stalls.length * 1e9))
        self._waiting: deque[Call] = deque()
        self.busy = 0
        self.workers, self.slowness = phase.workers, phase.slowness

    def enter(self, call: Call) -> None:
        """Stand in line."""
        self._waiting.append(call)

    def begin(self, now: int) -> tuple[int, Call] | None:
        """Serve the next in line if a worker is free: when it will be over, and whose call it is."""
        if not self._waiting or self.busy >= self.workers:
            return None
        self.busy += 1
        call = self._waiting.popleft()
        work = int(call.work * self.slowness)
        return (self._past_stalls(now, work) if self._every else now + work), call

    def _past_stalls(self, now: int, work: int) -> int:
        while True:
            nth, into = divmod(now, self._every)
            if nth and into < self._length:
                now += self._length - into
            stall = (now // self._every + 1) * self._every
            if now + work <= stall:
                return now + work
            work -= stall - now
            now = stall

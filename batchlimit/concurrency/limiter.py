"""ConcurrencyLimiter: the threaded front of the concurrency limiter."""

import math
from types import TracebackType
from typing import Self

from batchlimit.blocking import Turn, warn_in_loop
from batchlimit.concurrency.base_limiter import BaseLimiter
from batchlimit.concurrency.gate import Reason
from batchlimit.concurrency.permit import OVER, BasePermit
from batchlimit.concurrency.queue import Waiter
from batchlimit.errors import ConcurrencyLimited
from batchlimit.waiting import patience


class Permit(BasePermit):
    """Leave for one call to be under way, held from `acquire` on; the end of its `with` block completes it.

    Nobody can end a thread: a call that is sheddable has to `check` whether it is to give up.
    """

    __slots__ = ()

    def check(self) -> None:
        """ConcurrencyLimited if this call was told to give up: to be called now and then by one that is sheddable."""
        if self.shed:
            raise self._locked_gate.refusal("shed")

    def __enter__(self) -> Self:
        if self._state is OVER:
            raise RuntimeError(f"{self!r} was completed before")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ConcurrencyLimited) and error.reason == "shed" and self.shed:
            self.ignore()
        self._locked_gate.leave_by(self, error)


_SECOND = 1_000_000_000


class ConcurrencyLimiter(BaseLimiter):
    """Limits how many calls are under way at once, to what its law finds is best; safe in threads and over fork.

    `law` sets the limit (None: Knee()), and belongs to this limiter alone. `partitions` guarantees parts of it by name.
    Who finds no room waits in `queue`, if there is one. `classify` says of an exception that ends a call what it tells
    about the load; `bypass(operation, partition)` says which calls the limit is not for. `watchers` look at the machine
    once in `every` seconds, in a thread, and the law hears of what they see; if it persists, `shedding` ends calls that
    are under way. `clock` gives ns and must never run backwards.
    """

    def acquire(
        self,
        partition: str = "",
        *,
        timeout: float | None = None,
        operation: str = "",
        priority: int = 0,
        sheddable: bool = False,
    ) -> Permit:
        """Return a permit, at once or when it is this caller's turn; ConcurrencyLimited says why not, LimiterClosed.

        It waits for `timeout` seconds at most (None: as long as the queue lets it, 0: not at all), and never longer
        than the queue lets it. `operation` is what kind of call it is, for laws that hold unlike kinds apart. One that
        is `sheddable` may be told to give up, those of low `priority` first; see Shedding.
        """
        permit = Permit(self._locked_gate, operation, priority, sheddable)
        wait = math.inf if timeout is None else patience(timeout)
        if reason := self._locked_gate.enter(permit, partition):
            self._wait(permit, partition, wait, reason)
        if sheddable:
            self._locked_gate.exposed.add(permit)
        return permit

    def _wait(self, permit: Permit, partition: str, timeout: float, reason: Reason) -> None:
        """Line up, having been refused for this reason, and come back with the permit held."""
        waiters = self._locked_gate.waiters
        seconds = waiters.longest(timeout)
        if seconds <= 0:
            raise self._locked_gate.refusal(reason)
        warn_in_loop()
        turn = Turn()
        waiter = Waiter(turn.wake)
        try:
            waiters.join(waiter, partition)
            self._await(turn, seconds)
            held = waiters.leave(permit, waiter)
        except BaseException:
            if waiters.leave(permit, waiter):
                permit.ignore()
            raise
        if not held:
            raise self._locked_gate.refusal("queue_timeout")

    def _await(self, turn: Turn, seconds: float) -> None:
        """Return when it is their turn, or after so many seconds."""
        clock, waiters = self._locked_gate.clock, self._locked_gate.waiters
        until = clock() + seconds * _SECOND
        while seconds > 0 and not turn.wait(min(seconds, waiters.pause())):
            waiters.serve()
            seconds = (until - clock()) / _SECOND

    def close(self) -> None:
        """Let nobody enter any more; who waits is sent away with LimiterClosed, who is under way goes on."""
        self._calibration.stop()
        self._locked_gate.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

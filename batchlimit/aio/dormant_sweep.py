"""What has keys at rest forgotten when they are idle, by the limiter's one timer."""

import math

from batchlimit.aio.key_entry import Owner
from batchlimit.reservoir.dormant import DormantKeys


class DormantSweep:
    """Looks after all keys at rest, a few at a time; `due` is when it comes next."""

    __slots__ = ("_home", "_rest", "due")

    def __init__(self, rest: DormantKeys, home: Owner) -> None:
        self._rest, self._home = rest, home
        self.due = math.inf

    def __repr__(self) -> str:
        return f"<Sweep of {self._rest} at {self.due}>"

    def begin(self) -> None:
        """Be planned by a new timer: what another had planned went with it."""
        self.due = math.inf
        self.plan()

    def plan(self) -> None:
        """Come when there is something to forget."""
        self._come_at(self._rest.due)

    def ring(self) -> None:
        """Forget what is idle by now, or some of it."""
        self._come_at(self._rest.forget_idle(self._home.clock()))

    def _come_at(self, at: float) -> None:
        if at < self.due:
            self.due = at
            self._home.watch(self)

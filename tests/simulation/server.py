"""The server: the real memory store on a clock that may jump, and that may forget everything."""

from batchlimit.bucket.bucket import Bucket
from batchlimit.bucket.messages import Ask, GiveBack, Grant, Spend, Spent
from batchlimit.quota.quota import Quota
from batchlimit.stores.memory import MemoryStore
from batchlimit.stores.memory_parts import MemoryRules
from tests.simulation.agenda import SECOND, Agenda

KEY = "key"
BIRTH = 1_700_000_000 * SECOND
"""Where the server's clock begins: as many digits as a real one has."""


class Server:
    """One bucket in a `MemoryStore`."""

    __slots__ = ("_agenda", "_before", "_latest", "_offset", "_passed", "store")

    def __init__(self, agenda: Agenda) -> None:
        self._agenda, self._offset = agenda, BIRTH
        self._latest, self._before, self._passed = BIRTH, 0, 0
        self.lose()

    def take(self, quota: Quota, ask: Ask) -> Grant:
        self._bear()
        return self.store.take(KEY, quota, ask)

    def spend(self, spend: Spend) -> Spent | None:
        """Spend at once; None: instances lease of the bucket."""
        self._bear()
        told = self.store.spend([[spend]]).groups[0]
        return None if told is None else told[0]

    def give_back(self, quota: Quota, back: GiveBack) -> int:
        return self.store.give_back(KEY, quota, back)

    def jump(self, seconds: float) -> None:
        """Set the clock forward, or back."""
        self._offset += round(seconds * SECOND)

    def lose(self) -> None:
        """Lose all state, as a restart without persistence does."""
        self.store = MemoryStore(clock=self._clock)
        self.wipe()

    def wipe(self) -> None:
        """Lose the overrides."""
        self.store.rules = MemoryRules(self._clock)
        self.store.rules._began = 0.0  # it counts from 1970 already

    def _bear(self) -> None:
        if self.store._live(KEY, self.clock) is None:
            self.now()
            self._latest = self.clock  # the bucket that is born now has never seen a later hour

    @property
    def bucket(self) -> Bucket | None:
        """The bucket, if there is one."""
        return self.store._buckets.get(KEY, (None, 0))[0]

    @property
    def clock(self) -> int:
        """What its clock shows (us)."""
        return self._agenda.now + self._offset

    def now(self) -> int:
        """How much time (us) has gone by: by its clock where that was set forward, by the world's where back."""
        self._passed += max(self._agenda.now - self._before, self.clock - self._latest)
        self._before, self._latest = self._agenda.now, max(self._latest, self.clock)
        return self._passed

    def _clock(self) -> float:
        # Half a microsecond more than it is: the store cuts off what is smaller than one.
        return (self.clock + 0.5) / SECOND

"""A world for the pure rules: what a bucket might say, and a fleet of hosts around one bucket in virtual time."""

import heapq
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from batchlimit.core.bucket import Bucket
from batchlimit.core.claim import NOW, Admit, Claim, Fail, Fetch, Refuse, Wait
from batchlimit.core.lease import Ask, GiveBack, Grant
from batchlimit.core.quota import Quota
from batchlimit.core.reservoir import Reservoir
from batchlimit.core.share import bands_of, lease_of

SECOND = 1_000_000
"""The bucket counts in microseconds, and so does the world; each host has a clock of its own, in seconds."""


class Bell:
    """A waker that counts."""

    def __init__(self) -> None:
        self.rung = 0

    def set(self) -> None:
        self.rung += 1


ANSWER = Grant(
    granted=0, kept=0, starts_in=0.0, lease=1.0, retry_after=0.0, level=90, active_hosts=1, epoch=7, version=1
)
"""What a rich bucket says to an ask for nothing."""


def about(value: Any) -> Any:
    """Equal but for the rounding of sums, and of clocks that count microseconds."""
    return pytest.approx(value, abs=2e-6)


def answer(granted: int = 0, **rest: Any) -> Grant:
    return replace(ANSWER, granted=granted, **rest)


def excess(admissions: Iterable[tuple[int, int]], rate: float, burst: int) -> float:
    """By how many tokens the worst of all windows exceeds burst + rate * t: the largest debt of a plain bucket.

    Of (instant in us, tokens), in order.
    """
    level, before, worst = float(burst), 0, 0.0
    for at, tokens in admissions:
        level = min(burst, level + (at - before) * rate / SECOND) - tokens
        before, worst = at, max(worst, -level)
    return worst


@dataclass(frozen=True)
class Fate:
    """What the network does to one message; delays are shares of a lease."""

    there: float = 0.0
    back: float = 0.0
    lost: bool = False
    answer_lost: bool = False
    again: float | None = None


class World:
    """One bucket, the network before it, and an agenda: whatever happens, happens at an instant in microseconds."""

    def __init__(self, quota: Quota, fates: Iterable[Fate] = (Fate(),), *, start: int = 1_700_000_000 * SECOND) -> None:
        self.quota = quota
        self.lease = lease_of(bands_of(quota)) / SECOND
        self.timeout = 0.5 * self.lease
        self.now = 0
        self.admissions: list[tuple[int, int]] = []
        self.hosts: list[Host] = []
        self._start = start
        self._chance = Random(0)
        self._bucket = Bucket(quota, start)
        self._fates = itertools.cycle(fates)
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def join(self) -> "Host":
        """A host that the bucket has never heard of."""
        host = Host(self, f"host-{len(self.hosts)}")
        self.hosts.append(host)
        return host

    def at(self, instant: int, happening: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (max(instant, self.now), next(self._order), happening))

    def jitter(self) -> float:
        return self._chance.uniform(0.75, 1.25)

    def after(self, seconds: float, happening: Callable[[], None]) -> None:
        """Let it happen in so many seconds; nothing is faster than the rounding of either clock."""
        self.at(self.now + 2 + math.ceil(seconds * SECOND), happening)

    def run(self, until: int) -> None:
        """Let everything happen that is due before `until`."""
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, happening = heapq.heappop(self._agenda)
            happening()
            self.check()
        self.now = until

    def check(self) -> None:
        """What must be true at every instant."""
        bucket = self._bucket
        for band, level in zip(self.quota.bandwidths, bucket._levels, strict=True):
            assert level + bucket._roster.outstanding <= band.burst * (1 + 1e-12)
        assert bucket._roster.outstanding == sum(host.held for host in bucket._roster.hosts.values())
        for host in self.hosts:
            counted, begun = self._counted(host.name)
            assert host.held <= counted, f"{host} could spend what counts as spent"
            assert host.spendable <= begun, f"{host} could spend what has not yet flowed in"

    def _counted(self, name: str) -> tuple[int, int]:
        """What the bucket counts as this host's now, and how much of it may be spent now."""
        entry, now = self._bucket._roster.hosts.get(name), self._start + self.now - self._bucket._epoch
        if entry is None or entry.expires <= now:
            return 0, 0
        return entry.held, entry.held - (entry.granted if entry.starts > now else 0)

    def send(self, ask: Ask, receive: Callable[[Grant], None], give_up: Callable[[], None]) -> None:
        """Carry an ask to the bucket and its answer back; exactly one of `receive` and `give_up` is called."""
        fate = next(self._fates)
        answered = False

        def arrive(grant: Grant) -> None:
            nonlocal answered
            if not answered:
                answered = True
                receive(grant)

        def take(*, and_tell: bool) -> None:
            grant = self._bucket.take(self.quota, ask, self._start + self.now)
            if and_tell:
                self.after(fate.back * self.lease, lambda: arrive(grant))

        def expire() -> None:
            nonlocal answered
            if not answered:
                answered = True
                give_up()

        self.after(self.timeout, expire)
        if not fate.lost:
            self.after(fate.there * self.lease, lambda: take(and_tell=not fate.answer_lost))
        if fate.again is not None:
            self.after(fate.again * self.lease, lambda: take(and_tell=False))

    def give_back(self, back: GiveBack, over: Callable[[], None]) -> None:
        """Carry tokens back; `over` is called when that is over, whether they arrived or not."""
        fate = next(self._fates)
        answered = not fate.lost and not fate.answer_lost and fate.there + fate.back < 0.5
        self.after((fate.there + fate.back) * self.lease if answered else self.timeout, over)
        if not fate.lost:
            self.after(fate.there * self.lease, lambda: self._credit(back))
        if fate.again is not None:
            self.after(fate.again * self.lease, lambda: self._credit(back))

    def _credit(self, back: GiveBack) -> None:
        self._bucket.give_back(back, self._start + self.now)


class Host:
    """A front without threads: it drives a reservoir as batchlimit.sync does, and everything takes no time at all."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.admitted = self.refused = self.failed = 0
        self.late: list[float] = []
        """How long after their deadline callers had their verdict; for those who do not wait: after they came."""
        self._world = world
        self._offset = 1000.0 * (1 + len(world.hosts))
        self._seqs = itertools.count(1)
        self._came: dict[int, float] = {}
        self._frozen: list[Callable[[], None]] | None = None
        self._gone = False
        self._past = (0, 0)
        self._looks_at = math.inf
        self._reservoir = self._new()

    def __repr__(self) -> str:
        return f"<{self.name}: {self._reservoir}>"

    @property
    def held(self) -> int:
        """Tokens for which callers of this host could be admitted, now or later."""
        return self._reservoir.figures()[3] if self._lives else 0

    @property
    def spendable(self) -> int:
        """Those that they could be admitted for now."""
        return self._reservoir.stock.tokens + self._reservoir.stock.saved if self._lives else 0

    @property
    def _lives(self) -> bool:
        return not self._gone and self._clock() < self._reservoir.stock.expires

    @property
    def waiting(self) -> int:
        """Callers in line."""
        return len(self._came)

    def call(self, cost: int, patience: float = 0.0) -> None:
        """One caller comes: the hot path first, then the line."""
        self._do(lambda: self._call(cost, patience))

    def stall(self, seconds: float, cost: int) -> None:
        """Stop the process just after a thread took `cost` tokens; it looks at the clock when it goes on."""
        if self._frozen is not None or self._gone:
            return
        before = self._reservoir.stock.take(cost)
        self._frozen = []
        self._world.after(seconds, lambda: self._thaw(cost, before))

    def vanish(self) -> None:
        """Kill the process: nothing is given back, and what is on its way finds nobody."""
        self._gone = True

    def check(self) -> None:
        """The figures are exact: what callers were told, no more and no less."""
        admitted, refused, _, held, waiting = self._reservoir.figures()
        assert (self._past[0] + admitted, self._past[1] + refused) == (self.admitted, self.refused)
        assert held >= 0
        assert waiting == self.waiting

    def _new(self) -> Reservoir:
        return Reservoir(self._world.quota, self.name, self._seqs, self._clock(), idle_after=2 * self._world.lease)

    def _clock(self) -> float:
        return self._offset + self._world.now / SECOND

    def _do(self, happening: Callable[[], None]) -> None:
        """Whatever happens to a stopped process happens when it goes on."""
        if self._gone:
            return
        if self._frozen is not None:
            self._frozen.append(happening)
            return
        happening()
        self._wake()
        self._look_later()
        self.check()

    def _wake(self) -> None:
        while awake := self._reservoir.to_wake():
            for claim in awake:
                self._walk(claim)

    def _thaw(self, cost: int, before: float) -> None:
        happenings, self._frozen = self._frozen or [], None
        if self._clock() < before:
            self._spend(cost)
        elif before != -math.inf:
            self._reservoir.stock.took_late(cost)
        for happening in [*happenings, lambda: None]:
            self._do(happening)

    def _spend(self, cost: int) -> None:
        self.admitted += cost
        self._world.admissions.append((self._world.now, cost))

    def _call(self, cost: int, patience: float) -> None:
        if self._clock() < (before := self._reservoir.stock.take(cost)):
            self._spend(cost)
            return
        if before != -math.inf:
            self._reservoir.stock.took_late(cost)
        if self._reservoir.denies(cost, self._clock()):
            self._reservoir.refused += cost
            self.refused += cost
            return
        claim = Claim(cost, self._clock() + patience if patience else NOW, Bell())
        self._reservoir.join(claim)
        self._came[id(claim)] = self._clock()
        self._walk(claim)

    def _walk(self, claim: Claim) -> None:
        """What a thread does that waits in line, until it sleeps or leaves."""
        while id(claim) in self._came:
            match self._reservoir.step(claim, self._clock()):
                case Admit(before):
                    if self._clock() < before:
                        self._spend(claim.cost)
                        self._settle(claim)
                case Refuse():
                    self.refused += claim.cost
                    self._settle(claim)
                case Fail():
                    self.failed += claim.cost
                    self._settle(claim)
                case Wait(seconds):
                    if seconds is not None:
                        self._world.after(seconds, lambda: self._do(lambda: self._walk(claim)))
                    return
                case Fetch() as fetch:
                    self._send(fetch)

    def _settle(self, claim: Claim) -> None:
        came = self._came.pop(id(claim))
        self.late.append(self._clock() - (came if claim.deadline == NOW else claim.deadline))

    def _send(self, fetch: Fetch) -> None:
        def receive(grant: Grant) -> None:
            self._do(lambda: self._reservoir.granted(fetch, grant, self._clock(), self._world.jitter()))

        def give_up() -> None:
            self._do(lambda: self._reservoir.failed(fetch, TimeoutError(), self._clock()))

        self._world.send(fetch.ask, receive, give_up)

    def _give_back(self, back: GiveBack) -> None:
        def over() -> None:
            self._do(lambda: self._reservoir.gave_back(self._clock()))

        self._world.give_back(back, over)

    def _look_later(self) -> None:
        """Plan the next visit of the keeper; an earlier one than planned replaces it."""
        due = max(self._reservoir.due(), self._clock())
        if due < self._looks_at:
            self._looks_at = due
            self._world.after(due - self._clock(), lambda: self._do(lambda: self._tend(due)))

    def _tend(self, due: float) -> None:
        if due == self._looks_at:
            self._looks_at = math.inf
        match self._reservoir.tend(self._clock()):
            case Fetch() as fetch:
                self._send(fetch)
            case GiveBack() as back:
                self._give_back(back)
            case None:
                pass
        if self._reservoir.retired:
            self._wake()
            admitted, refused, *_ = self._reservoir.figures()
            self._past = self._past[0] + admitted, self._past[1] + refused
            self._reservoir = self._new()

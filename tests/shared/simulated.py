"""A fleet that shares one limit, in virtual time: messages are lost, doubled and overtaken, processes stop and die."""

import heapq
import itertools
import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from batchlimit.bucket.slot_table import SlotAsk, SlotPush, SlotReply, SlotTable
from batchlimit.errors import StoreUnavailable
from batchlimit.shared.held_slots import Place, SlotWaiter
from batchlimit.shared.local_slots import LocalSlots, Shared

SECOND = 1_000_000
LEASE = 1.0
DEADLINE = SECOND // 4
FAULTS = 12 * SECOND
"""How long callers come and faults happen (us); then all has to come to rest."""


@dataclass
class Process:
    """One limiter instance, its clock, and the permits of its callers."""

    slots: LocalSlots
    rate: float
    offset: int
    held: dict[Place, None] = field(default_factory=dict)
    waiting: dict[SlotWaiter, None] = field(default_factory=dict)
    is_asking: bool = False
    stopped_until: int = 0
    is_dead: bool = False

    def now(self, time: int) -> int:
        """Its own clock (ns)."""
        return self.offset + int(time * 1000 * self.rate)


class Run:
    """One story, by its seed. `play` raises AssertionError where a rule is broken."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.time, self.steps = SECOND * 10**6, 0
        self.end = self.time + FAULTS
        self.limit = self.random.choice((1, 1, 2, 3, 5, 20))
        self.trouble = self.random.choice((0.0, 0.05, 0.3))
        self.table = SlotTable()
        self.agenda: list[tuple[int, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self.processes = [self.hire() for _ in range(self.random.randint(1, 6))]
        self.last_token = 0
        self.served = 0
        self.losses = [-(10**18)]

    def hire(self) -> Process:
        """A process with a clock of its own, which is up to 4 % off."""
        name = f"p{next(self.numbers)}"
        names = itertools.count()
        weight = self.random.choice((1, 1, 1, 3))
        slots = LocalSlots("key", Shared(self.limit, lease=LEASE), lambda: f"{name}.{next(names)}", weight)
        process = Process(slots, 1 + self.random.uniform(-0.04, 0.04), self.random.randrange(10**15))
        self.later(self.random.randrange(SECOND), lambda: self.come(process))
        return process

    def later(self, delay: float, work: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (self.time + int(delay), next(self.numbers), work))

    def play(self) -> None:
        for _ in range(self.random.randint(0, 5)):
            self.later(self.random.randrange(FAULTS), self.random.choice((self.stop, self.stop, self.kill)))
        if self.random.random() < 0.1:
            first = self.random.randrange(FAULTS)
            for _ in range(self.random.choice((1, 1, 2, 5))):
                self.later(first + self.random.randrange(SECOND), self.wipe)
        if self.random.random() < 0.1:
            self.later(self.random.randrange(FAULTS), self.fail_over)
        while self.agenda:
            self.time, _, work = heapq.heappop(self.agenda)
            work()
            self.steps += 1
            self.check()
        self.check_rest()

    # Callers

    def come(self, process: Process) -> None:
        """A caller comes, and the next one after it."""
        if process.is_dead or self.time >= self.end:
            return
        self.later(self.random.expovariate(8 / SECOND), lambda: self.come(process))
        self.when_running(process, lambda: self.enter(process))

    def enter(self, process: Process) -> None:
        slots, now = process.slots, process.now(self.time)
        if place := slots.enter(now):
            self.hold(process, place)
            return
        waiter = SlotWaiter(lambda: None, self.random.random() < 0.9, 0, None)
        slots.line_up(waiter, now)
        process.waiting[waiter] = None
        self.later(self.random.choice((0.05, 0.5, 5.0)) * SECOND, lambda: self.give_up(process, waiter))
        self.attend(process)

    def give_up(self, process: Process, waiter: SlotWaiter) -> None:
        def work() -> None:
            if process.waiting.pop(waiter, 1) is None:
                self.wake(process, process.slots.give_up, waiter, process.now(self.time))

        self.when_running(process, work)

    def hold(self, process: Process, place: Place) -> None:
        self.served += 1
        if self.limit == 1 and self.time - self.losses[-1] > 3 * SECOND and not place.is_lost(process.now(self.time)):
            assert place.token > self.last_token, "a token does not grow"
        self.last_token = max(self.last_token, place.token)
        process.held[place] = None
        seconds = self.random.choice((0.0, 0.01, 0.1, 0.1, 1.5))
        self.later(seconds * SECOND, lambda: self.when_running(process, lambda: self.leave(process, place)))

    def leave(self, process: Process, place: Place) -> None:
        process.held.pop(place)
        self.wake(process, process.slots.leave, place, process.now(self.time))

    def wake(self, process: Process, change: Callable[..., None], *args: Any) -> None:
        change(*args)
        for waiter in process.slots.line.ready:
            process.slots.line.unwoken.pop(waiter)
            if process.waiting.pop(waiter, 1) is None and waiter.place:
                self.hold(process, waiter.place)
        self.attend(process)

    # The thread of a process, and the network

    def attend(self, process: Process) -> None:
        """Ask when it is due, one ask at a time."""
        if process.is_asking or process.is_dead or process.slots.due == float("inf"):
            return
        wait = max(0.0, (process.slots.due - process.now(self.time)) / 1000 / process.rate)
        due = process.slots.due

        def look() -> None:
            if not process.is_asking and process.slots.due <= due + 1000:
                self.ask(process)

        self.later(wait + 1, lambda: self.when_running(process, look))

    def ask(self, process: Process) -> None:
        slots, sent = process.slots, process.now(self.time)
        slots.expire(sent)
        if slots.is_over:
            return
        process.is_asking, ask = True, slots.ask(sent)
        state = {"open": True}

        def answered(reply: SlotReply) -> None:
            if state.pop("open", False):
                process.is_asking = False
                now = process.now(self.time)
                self.wake(process, slots.answer, ask, reply, sent, now)
                if slots.line:
                    slots.due = min(slots.due, now + self.random.uniform(0.5e9, 1e9))
                    self.attend(process)

        def failed() -> None:
            if state.pop("open", False):
                process.is_asking = False
                retry = process.now(self.time) + 100_000_000
                self.wake(process, slots.fail, StoreUnavailable("away"), retry, 0)

        for _ in range(self.copies()):
            self.later(self.delay(), lambda: self.serve(process, ask, answered))
        self.later(DEADLINE, lambda: self.when_running(process, failed))

    def serve(self, process: Process, ask: SlotAsk, answered: Callable[[SlotReply], None]) -> None:
        """The store carries out an ask."""
        reply, pushes = self.table.lend(ask, self.time)
        for push in pushes:
            for _ in range(self.copies()):
                self.later(self.delay(), lambda push=push: self.deliver(push))  # type: ignore[misc]
        for _ in range(self.copies()):
            self.later(self.delay(), lambda: self.when_running(process, lambda: answered(reply)))

    def deliver(self, push: SlotPush) -> None:
        for process in self.processes:
            if process.slots.held.name.split(".")[0] == push.instance.split(".")[0]:
                self.when_running(process, lambda process=process: self.hear(process, push))  # type: ignore[misc]

    def hear(self, process: Process, push: SlotPush) -> None:
        self.wake(process, process.slots.hear, push, process.now(self.time))

    def copies(self) -> int:
        if self.time >= self.end or self.random.random() >= self.trouble:
            return 1
        return self.random.choice((0, 0, 2))

    def delay(self) -> float:
        if self.time < self.end and self.random.random() < self.trouble:
            return self.random.choice((0.05, 0.2, 1.0, 2.5)) * SECOND * self.random.random()
        return self.random.uniform(50, 5000)

    # Faults

    def when_running(self, process: Process, work: Callable[[], None]) -> None:
        """Do it now, or when the process goes on; never in one that died."""
        if process.is_dead:
            return
        if process.stopped_until > self.time:
            self.later(process.stopped_until - self.time + 1, lambda: self.when_running(process, work))
        else:
            work()

    def stop(self) -> None:
        victim = self.random.choice(self.processes)
        victim.stopped_until = self.time + int(self.random.choice((0.3, 0.95, 1.5, 3.0)) * SECOND)

    def kill(self) -> None:
        victim = self.random.choice(self.processes)
        victim.is_dead = True
        victim.held.clear()
        self.processes.append(self.hire())

    def wipe(self) -> None:
        """The store loses its data: until all leases are over, it may lend all slots once more for each loss."""
        self.table = SlotTable()
        self.losses.append(self.time)
        self.last_token = 0

    def fail_over(self) -> None:
        """The store goes back in time: a replica that had not heard of the last writes takes over."""
        past = deepcopy(self.table)

        def promote() -> None:
            self.table = past
            self.losses.append(self.time)
            self.last_token = 0

        self.later(self.random.choice((0.001, 0.1, 2.0)) * SECOND, promote)

    # Rules

    def check(self) -> None:
        working = 0
        for process in self.processes:
            if not process.is_dead:
                now = process.now(self.time)
                working += sum(not place.is_lost(now) for place in process.held)
                if process.slots.held.count > 0 and now < process.slots.held.lease.until:
                    self.check_belief(process)
        losses = sum(self.time - each < 3 * SECOND for each in self.losses)
        assert working <= self.limit * (1 + losses), f"{working} of {self.limit} are held after {losses} losses"

    def check_belief(self, process: Process) -> None:
        """No process believes to hold more than the store lends it."""
        if self.time - self.losses[-1] < 3 * SECOND:
            return
        lent = self.table._by_name.get(process.slots.held.name)
        assert lent is not None, "the store does not know a holder"
        assert process.slots.held.count <= lent.held, "a process believes to hold more than the store lends it"
        assert lent.ends > self.time, "the lease is over at the store first"

    def check_rest(self) -> None:
        """In the end everybody was served, and everything went back."""
        assert not any(process.held or process.waiting for process in self.processes if not process.is_dead)
        reply, _ = self.table.lend(SlotAsk("last.1", self.limit, SECOND, target=self.limit), self.time + 2 * SECOND)
        assert reply.granted == self.limit, "slots did not come back"


def play(seed: int) -> Run:
    """Play a story."""
    run = Run(seed)
    try:
        run.play()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, step {run.steps}: {error}") from error
    return run

"""One run of a scenario: a fleet in virtual time under watch."""

import math
from functools import partial
from typing import Any

from batchlimit.quota.overrides.override import Override
from batchlimit.quota.overrides.overrides import Change
from tests.simulation.agenda import SECOND, Agenda
from tests.simulation.instance import Process
from tests.simulation.network import Post
from tests.simulation.scenario import Event, Scenario
from tests.simulation.server import KEY, Server
from tests.simulation.watch import Violation, Watch

_PATIENCE = 20.0
"""How long after the last event, and after the waiting costs have flowed in, everyone must have been told: seconds."""
_LOOKS, _PAUSE = 8, 2.0
"""How often everyone asks at the end, and how far apart (s): a read that was lost is given up after 10 s."""


class Run:
    """The fleet of a scenario. `play` raises Violation where a rule is broken."""

    def __init__(self, scenario: Scenario, *, trace: bool = False) -> None:
        self.scenario = scenario
        self.steps = 0
        self._agenda = Agenda()
        self._server = Server(self._agenda)
        self._post = Post(self._agenda, scenario.weather, scenario.timeout)
        self._quota = scenario.quotas[0]
        self._requotas = self._revision = 0
        self._joined = 0
        self.instances: list[Process] = []
        self.watch = Watch(self._agenda, self._server, self._quota, self.instances, scenario.timeout)
        if not scenario.is_exact:
            self.watch.changed(list(scenario.quotas))
        if trace:
            self.watch.trace = []
        self._places = [self._join(place) for place in range(len(scenario.weights))]

    def play(self) -> None:
        """Let everything happen, and then wait until nobody waits."""
        for event in self.scenario.events:
            self._agenda.at(round(event.at * SECOND), partial(self._happen, event))
        self._go_on(self.scenario.seconds)
        self._post.undisturbed = True
        for instance in self._places:  # a process that was stopped goes on
            if instance.stopped:
                instance.crash()
        self._go_on(self._agenda.now / SECOND + _PATIENCE + self._time_to_serve())
        self._hear()
        for instance in self.instances:
            if not instance.gone and (instance.waiting or instance.in_line):
                raise Violation(f"{instance.name} still has {instance.waiting or instance.in_line} in line")

    def _go_on(self, until: float) -> None:
        while self._agenda.next_before(round(until * SECOND)):
            self.steps += 1
            self.watch.look()

    def _time_to_serve(self) -> float:
        waiting = sum(instance.awaited for instance in self.instances)
        return 3.0 * max(waiting / each.rate for quota in self.scenario.quotas for each in quota.bandwidths)

    def _join(self, place: int) -> Process:
        self._joined += 1
        idle_after = 2.0 * min(each.burst / each.rate for each in self._quota.bandwidths)
        instance = Process(
            f"{self.scenario.seed}-{place}.{self._joined}", self._quota, self._agenda, self._server, self._post,
            self.watch, idle_after=idle_after, weight=self.scenario.weights[place],
            revision=self._revision,
        )  # fmt: skip
        self.instances.append(instance)
        return instance

    def _happen(self, event: Event) -> None:
        if self.watch.trace is not None:
            self.watch.trace.append(str(event))
        getattr(self, event.kind)(event, self._places[event.place])

    def calls(self, event: Event, instance: Process) -> None:
        for _ in range(event.number):
            instance.call(event.cost, event.seconds)

    def wait(self, event: Event, instance: Process) -> None:
        """Callers come that wait as long as it takes."""
        for _ in range(event.number):
            instance.call(event.cost, math.inf)

    def stream(self, event: Event, instance: Process) -> None:
        """Call the process that is in this place by then."""
        for i in range(event.number):
            self._agenda.after(event.seconds * i / event.number, lambda: self._places[event.place].call(event.cost))

    def stall(self, event: Event, instance: Process) -> None:
        instance.stall(event.seconds, event.cost)

    def spend(self, event: Event, instance: Process) -> None:
        for n in range(event.number):
            self._agenda.after(event.seconds * n / event.number, partial(instance.spend, event.cost))

    def crash(self, event: Event, instance: Process) -> None:
        instance.crash()
        self._places[event.place] = self._join(event.place)

    def close(self, event: Event, instance: Process) -> None:
        if not instance.stopped:
            instance.close()
            self._places[event.place] = self._join(event.place)

    def refund(self, event: Event, instance: Process) -> None:
        """Callers give back what they were admitted for, once."""
        tokens = min(event.number * event.cost, instance.admitted - instance.refunded)
        if tokens > 0 and not instance.stopped:
            instance.refunded += tokens
            instance.refund(tokens)

    def debit(self, event: Event, instance: Process) -> None:
        """Callers used more than they had estimated; it may be more than ever fits at once."""
        instance.debit(event.number * event.cost)

    def interrupt(self, event: Event, instance: Process) -> None:
        instance.leave_line(event.number)

    def jump(self, event: Event, instance: Process) -> None:
        outstanding = self._outstanding()
        self._server.jump(event.seconds)
        self.watch.jumped(outstanding, event.seconds)

    def lose(self, event: Event, instance: Process) -> None:
        bucket = self._server.bucket
        self.watch.lost(self._outstanding(), max(0.0, -min(bucket._levels)) if bucket else 0.0)
        self._server.lose()

    def requota(self, event: Event, instance: Process) -> None:
        """A deployment reaches this place: the process ends, and the next one has the new quota."""
        self._requotas += 1
        self._quota = self.scenario.quotas[self._requotas % len(self.scenario.quotas)]
        self.close(event, instance)

    def override(self, event: Event, instance: Process) -> None:
        """An operator sets another quota for the key, for a time or for good, or removes it."""
        self._rule(event, quota=self.scenario.quotas[event.number % len(self.scenario.quotas)])

    def mode(self, event: Event, instance: Process) -> None:
        """An operator has everything admitted, or counted alone, for a time or for good; or ends that."""
        self._rule(event, quota=None, mode="open" if event.number == 1 else "shadow")

    def _rule(self, event: Event, **override: Any) -> None:
        rules, text = self._server.store.rules, ""
        if event.number:
            until = rules.read(-1).now + event.seconds if event.seconds else None
            text = Override(KEY, until=until, **override).encode()
        rules.change(Change(rules.revision, {KEY: text}))
        self.watch.ruled(rules.revision, rules.read(-1).fields or {})

    def fill(self, event: Event, instance: Process) -> None:
        """An operator fills the bucket."""
        before = self._server.store.reset(KEY, forget=bool(event.number))
        if before is not None and (bucket := self._server.bucket) is not None:
            bursts = [float(band.burst) for band in bucket._bands]
            self.watch.filled(list(before), bucket._levels, bursts, forgets=bool(event.number))

    def revise(self, event: Event, instance: Process) -> None:
        """A deployment reaches this place, or is rolled back: its processes number their quotas."""
        self._revision = event.number
        self._quota = self.scenario.quotas[event.number % len(self.scenario.quotas)]
        self.close(event, instance)

    def reload(self, event: Event, instance: Process) -> None:
        """The process in this place notices that its file of limits says something else."""
        self._quota = self.scenario.quotas[event.number % len(self.scenario.quotas)]
        instance.reload(self._quota)

    def wipe(self, event: Event, instance: Process) -> None:
        """The overrides are lost: those who know them keep them."""
        self._server.wipe()

    def _hear(self) -> None:
        """Let everyone ask once more, and find that each knows what stands in the store."""
        if not any(event.kind in ("override", "mode", "reload") for event in self.scenario.events):
            return
        for _ in range(_LOOKS):
            for instance in self._places:
                instance.call(1)
            self._go_on(self._agenda.now / SECOND + _PAUSE)
        self.watch.check_known(self._places)

    def _outstanding(self) -> int:
        bucket = self._server.bucket
        return bucket._table.outstanding if bucket else 0

"""The promise, for real reservoirs around a real bucket, over a network and in processes that fail in every way.

admitted(t1, t2) <= burst + rate * (t2 - t1), for every window; level + outstanding <= burst, and no host can spend what
the bucket does not count as outstanding, at every instant; and what callers were told is what the figures say.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchlimit.core.quota import Quota
from tests.core.world import SECOND, Fate, Host, World, excess


@dataclass(frozen=True)
class Step:
    """What befalls one host after a pause; times are shares of a lease."""

    pause: float
    host: int
    action: str
    number: int = 1
    cost: int = 1
    time: float = 0.0


def _quota(burst: int, seconds: float, also: tuple[int, float] | None) -> Quota:
    second = [Quota(also[0] / also[1], also[0])] if also else []
    return Quota(burst / seconds, burst, second)


_seconds = st.sampled_from((0.1, 0.5, 1.0, 2.5, 5.0))
_quotas = st.builds(
    _quota,
    st.integers(1, 60),
    _seconds,
    st.one_of(st.none(), st.none(), st.tuples(st.integers(1, 60), _seconds)),
)
_delays = st.sampled_from((0.0, 0.01, 0.05, 0.2, 0.45, 0.7))
_fates = st.builds(
    Fate,
    there=_delays,
    back=_delays,
    lost=st.sampled_from((False, False, False, True)),
    answer_lost=st.sampled_from((False, False, False, True)),
    again=st.one_of(st.none(), st.none(), st.sampled_from((0.05, 0.3, 0.8, 1.5))),
)
_pauses = st.sampled_from((0.0, 0.02, 0.1, 0.1, 0.3, 1.1))
_steps = st.builds(
    Step,
    pause=_pauses,
    host=st.integers(0, 3),
    action=st.sampled_from(("burst", "burst", "stream", "stream", "stream", "wait", "stall", "vanish")),
    number=st.sampled_from((1, 3, 10, 30)),
    cost=st.sampled_from((1, 1, 1, 2, 5, 20)),
    time=st.sampled_from((0.1, 0.6, 0.95, 1.2, 2.5)),
)


def _play(world: World, hosts: list[Host], steps: list[Step]) -> None:
    largest = world.quota.largest_cost
    for step in steps:
        world.run(world.now + int(step.pause * world.lease * SECOND))
        place = step.host % len(hosts)
        host, cost = hosts[place], min(step.cost, largest)
        match step.action:
            case "stall":
                host.stall(step.time * world.lease, cost)
            case "vanish":
                host.vanish()
                hosts[place] = world.join()
            case "stream":
                for i in range(step.number):
                    world.after(step.time * world.lease * i / step.number, partial(host.call, cost))
            case action:
                for _ in range(step.number):
                    host.call(cost, step.time * world.lease if action == "wait" else 0.0)
        world.check()
    world.run(world.now + int(10 * world.lease * SECOND))


def _check_promise(world: World) -> None:
    for band in world.quota.bandwidths:
        rounding = 1e-6 + 2 * band.rate / SECOND  # the bucket's clock, and ours, count whole microseconds
        assert excess(world.admissions, band.rate, band.burst) <= rounding


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_quotas, st.integers(1, 4), st.lists(_fates, min_size=1, max_size=12), st.lists(_steps, min_size=5, max_size=60))
def test_no_window_admits_more_than_burst_and_flow(
    quota: Quota, hosts: int, fates: list[Fate], steps: list[Step]
) -> None:
    world = World(quota, fates)
    _play(world, [world.join() for _ in range(hosts)], steps)
    _check_promise(world)


class Weather:
    """One seed's world: how the network is, how much callers want, and what happens to the hosts."""

    def __init__(self, seed: int) -> None:
        self._chance = chance = Random(seed)
        seconds, burst = chance.choice((0.3, 1.0, 2.5, 5.0)), chance.choice((3, 10, 30, 100))
        slower = [Quota(burst / seconds / 2, burst * 3)] if chance.random() < 0.2 else []
        self._slow, self._lossy = chance.choice((0.02, 0.1, 0.3)), chance.choice((0.0, 0.05, 0.2))
        self._patience = chance.choice((0.0, 0.3, 1.0))
        self._load = chance.choice((0.4, 1.0, 3.0))
        self._trouble = chance.choice((0.0, 0.02, 0.1))
        self.world = World(Quota(burst / seconds, burst, slower), self._fates())
        self._hosts = [self.world.join() for _ in range(chance.randint(1, 4))]

    def pass_over(self, leases: int) -> None:
        """On and off, by turns of a lease or so: steady demand, silence, a burst."""
        for place in range(len(self._hosts)):
            at = 0.0
            while at < leases:
                length = self._chance.uniform(0.2, 2.0)
                self._spell(place, at, length, self._chance.choice((0.0, 1.0, 1.0, 1.0, 5.0)))
                at += length
        self.world.run(int((leases + 5) * self.world.lease * SECOND))

    def _spell(self, place: int, at: float, length: float, swell: float) -> None:
        chance, world = self._chance, self.world
        tokens = int(length * world.lease * world.quota.rate * self._load * swell / len(self._hosts))
        while tokens > 0:
            cost = min(chance.choice((1, 1, 1, 2, 7)), world.quota.largest_cost)
            happening = partial(self._happen, place, cost, chance.random() < self._patience, chance.random())
            world.after(chance.uniform(at, at + length) * world.lease, happening)
            tokens -= cost

    def _happen(self, place: int, cost: int, patient: bool, trouble: float) -> None:
        host, lease = self._hosts[place], self.world.lease
        if trouble < self._trouble / 4:
            host.vanish()
            self._hosts[place] = self.world.join()
        elif trouble < self._trouble:
            host.stall(self._chance.uniform(0.1, 2.0) * lease, cost)
        else:
            host.call(cost, self._chance.uniform(0.1, 3.0) * lease if patient else 0.0)

    def _fates(self) -> Iterator[Fate]:
        chance = self._chance
        while True:
            yield Fate(
                there=chance.uniform(0.0, self._slow if chance.random() < 0.9 else 0.48),
                back=chance.uniform(0.0, self._slow),
                lost=chance.random() < self._lossy,
                answer_lost=chance.random() < self._lossy,
                again=chance.uniform(0.0, 1.5) if chance.random() < self._lossy else None,
            )


@pytest.mark.parametrize("seeds", [range(first, first + 25) for first in range(0, 300, 25)], ids=str)
def test_no_window_admits_more_in_any_weather(seeds: range) -> None:
    for seed in seeds:
        weather = Weather(seed)
        weather.pass_over(leases=25)
        _check_promise(weather.world)


_calm = st.builds(Fate, there=st.sampled_from((0.01, 0.05)), back=st.sampled_from((0.0, 0.05)))
_calls = st.builds(
    Step,
    pause=_pauses,
    host=st.integers(0, 3),
    action=st.sampled_from(("burst", "stream", "wait")),
    number=st.sampled_from((1, 3, 10)),
    cost=st.sampled_from((1, 1, 2, 5, 20)),
    time=st.sampled_from((0.1, 0.6, 2.5)),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_quotas, st.integers(1, 3), st.lists(_calm, min_size=1, max_size=5), st.lists(_calls, min_size=5, max_size=40))
def test_every_caller_has_its_answer_in_time(quota: Quota, hosts: int, fates: list[Fate], steps: list[Step]) -> None:
    """Whoever does not wait: after the trip in progress and its own. Whoever waits: at the deadline at the latest."""
    world = World(quota, fates)
    _play(world, [world.join() for _ in range(hosts)], steps)
    round_trip = 0.1 * world.lease + 7e-6  # at most, and what the world rounds
    for host in world.hosts:
        assert host.waiting == host.failed == 0
        assert max(host.late, default=0.0) <= 2 * round_trip


@pytest.mark.parametrize("hosts", [1, 2, 8])
@pytest.mark.parametrize(
    "quota", [Quota(1000.0, 1000), Quota(1000.0, 100), Quota(100.0, 200, [Quota(150.0, 150)])], ids=str
)
def test_what_flows_in_is_used_and_shared(quota: Quota, hosts: int) -> None:
    """Ten seconds of three times the rate, over a network of a millisecond: little is left over, no host starves."""
    world = World(quota, [Fate(there=0.0005 / 0.4, back=0.0005 / 0.4)])
    members = [world.join() for _ in range(hosts)]
    calls = int(10 * 3 * quota.rate / hosts)
    for place, host in enumerate(members):
        for i in range(calls):
            world.at(int((i + place / hosts) * 10 * SECOND / calls), partial(host.call, 1))
    world.run(2 * SECOND)
    first = [host.admitted for host in members]  # who comes first finds a full bucket
    world.run(10 * SECOND)
    shares = [host.admitted - before for host, before in zip(members, first, strict=True)]
    assert sum(shares) >= 0.98 * 8 * min(each.rate for each in quota.bandwidths)
    assert min(shares) >= 0.85 * max(shares)

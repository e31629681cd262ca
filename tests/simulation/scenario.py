"""A scenario: everything that befalls a fleet in one run, drawn from a seed, and removable piece by piece."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from batchlimit.quota.quota import Quota
from tests.simulation.network import Weather


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens `at` so many seconds, to the instance in one place of the fleet, or to the server.

    Its kind is a method of Run.
    """

    at: float
    kind: str
    place: int = 0
    number: int = 1
    cost: int = 1
    seconds: float = 0.0
    """How long it lasts: a stream, a stall, an override, a jump of the server's clock; or how long callers have
    patience. An override or a mode of no number is removed."""

    def __str__(self) -> str:
        return f"{self.at:11.6f}  * {self.kind} x{self.number} of {self.cost} at {self.place}, {self.seconds:.6f} s"


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a seed stands for. Two runs of the same scenario are the same to the last microsecond."""

    seed: int
    quotas: tuple[Quota, ...]
    """The first one holds; each `requota` starts an instance with the next."""
    weights: tuple[int, ...]
    weather: Weather
    timeout: float
    events: tuple[Event, ...]

    @property
    def seconds(self) -> float:
        """When the last event is over."""
        return max((event.at + event.seconds for event in self.events), default=0.0)

    @property
    def is_exact(self) -> bool:
        """Whether one quota holds for the whole run."""
        return not any(event.kind in ("requota", "override", "revise", "reload") for event in self.events)


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed: short, of few instances and small numbers, where everything is near its edge."""
    chance = Random(seed)
    quotas = _quotas(chance)
    scale = min(1.0, *(each.burst / each.rate for each in quotas[0].bandwidths))
    slow = chance.choice((0.001, 0.02, 0.1)) * scale
    weather = Weather(seed, slow, chance.choice((slow, 0.5 * scale)), chance.choice((0.0, 0.0, 0.05, 0.2)))
    weights = tuple(chance.choice((1, 1, 1, 2, 5)) for _ in range(chance.choice((1, 2, 2, 3, 4, 6))))
    drawn = [
        *_events(chance, quotas[0], scale, len(weights)),
        *_overrides(seed, scale, len(quotas)),
        *_operators(seed, scale, len(weights)),
        *_files(seed, scale, len(weights)),
        *_strangers(seed, scale, quotas[0], len(weights)),
    ]
    events = sorted(drawn, key=lambda event: event.at)
    return Scenario(seed, quotas, weights, weather, chance.choice((0.2, 0.5)) * scale, tuple(events))


def _quotas(chance: Random) -> tuple[Quota, ...]:
    def one() -> Quota:
        burst = chance.choice((1, 3, 10, 30, 100))
        slower = [Quota(burst / chance.choice((1.0, 3.0, 10.0)), 2 * burst)] if chance.random() < 0.2 else []
        return Quota(burst / chance.choice((0.1, 0.5, 1.0, 3.0)), burst, slower)

    return tuple(one() for _ in range(3))


def _events(chance: Random, quota: Quota, scale: float, instances: int) -> Iterator[Event]:
    """Demand by spells of on and off, and with it the kind of trouble that this seed is about."""
    length = chance.choice((4.0, 10.0)) * scale
    load, patience = chance.choice((0.3, 1.0, 3.0, 10.0)), chance.choice((0.0, 0.0, 0.3, 1.0))
    costs = chance.choice(((1,), (1,), (1, 1, 2, 7), (1, quota.largest_cost)))
    for place in range(instances):
        at = 0.0
        while at < length:
            spell = chance.uniform(0.1, 2.0) * scale
            yield from _spell(chance, quota, at, spell, place, load / instances, costs, patience * scale)
            at += spell
    for kind in chance.choice(_TROUBLES):
        for _ in range(chance.choice((1, 2, 5))):
            yield _trouble(chance, kind, chance.uniform(0.0, length), chance.randrange(instances), scale, quota)


def _overrides(seed: int, scale: float, quotas: int) -> Iterator[Event]:
    """Operators come in every eighth seed. They have dice of their own: the other seeds stay what they are."""
    if seed % 8 != 7:
        return
    chance = Random(f"{seed} overrides")
    for _ in range(chance.choice((1, 2, 4))):
        lasts = chance.choice((0.0, 0.0, chance.uniform(0.1, 4.0) * scale))
        yield Event(chance.uniform(0.0, 8.0) * scale, "override", 0, chance.randrange(quotas + 1), 1, lasts)
    if chance.random() < 0.2:
        yield Event(chance.uniform(0.0, 8.0) * scale, "wipe")


def _operators(seed: int, scale: float, instances: int) -> Iterator[Event]:
    """Operators admit all, refuse nothing and fill buckets, and deployments roll back: with dice of their own."""
    if seed % 8 != 3:
        return
    chance = Random(f"{seed} operators")
    for _ in range(chance.choice((1, 2, 4))):
        lasts = chance.choice((0.0, chance.uniform(0.1, 4.0) * scale))
        yield Event(chance.uniform(0.0, 8.0) * scale, "mode", 0, chance.randrange(3), 1, lasts)
    for _ in range(chance.choice((0, 1, 3))):
        yield Event(chance.uniform(0.0, 8.0) * scale, "fill", 0, chance.randrange(2))
    for _ in range(chance.choice((0, 0, 2, 5))):
        yield Event(chance.uniform(0.0, 8.0) * scale, "revise", chance.randrange(instances), chance.randrange(3))


def _files(seed: int, scale: float, instances: int) -> Iterator[Event]:
    """A file of limits changes, and each process notices within a while: with dice of their own."""
    if seed % 8 != 5:
        return
    chance = Random(f"{seed} files")
    for _ in range(chance.choice((1, 2, 4))):
        at, number = chance.uniform(0.0, 8.0) * scale, chance.randrange(3)
        for place in range(instances):
            yield Event(at + chance.random() * 0.2 * scale, "reload", place, number)
    if chance.random() < 0.3:
        yield Event(chance.uniform(0.0, 8.0) * scale, "override", 0, chance.randrange(4), 1, chance.random() * scale)


def _strangers(seed: int, scale: float, quota: Quota, instances: int) -> Iterator[Event]:
    """Limiters where the key is not in use spend, before others lease of it and once all leases are over.

    For the bucket they are over ten seconds after its last change.
    """
    if seed % 8 != 6:
        return
    chance = Random(f"{seed} strangers")
    for begins in (0.0, 0.0, 8.0 * scale, 8.0 * scale + 10.0, 8.0 * scale + 21.0):
        for _ in range(chance.choice((1, 2, 4))):
            at, place = begins + chance.uniform(0.0, 1.0) * scale, chance.randrange(instances)
            cost = min(chance.choice((1, 1, 3)), quota.largest_cost)
            yield Event(
                at, "spend", place, chance.randint(1, min(40, 2 * quota.largest_cost)), cost, chance.random() * scale
            )
        if begins and chance.random() < 0.5:
            at, place = begins + chance.uniform(0.5, 2.0) * scale, chance.randrange(instances)
            yield Event(at, "calls", place, chance.randint(1, min(40, 2 * quota.largest_cost)))


_TROUBLES: tuple[tuple[str, ...], ...] = (
    (), (), ("stall",), ("crash",), ("crash", "close"), ("refund", "interrupt"), ("debit", "interrupt"), ("jump",),
    ("lose",), ("requota",),
    ("stall", "crash", "close", "refund", "debit", "interrupt"), ("jump", "lose", "stall", "crash"),
    ("requota", "crash", "stall", "debit"),
)  # fmt: skip


def _spell(
    chance: Random, quota: Quota, at: float, length: float, place: int, load: float, costs: tuple[int, ...], wait: float
) -> Iterator[Event]:
    cost = min(chance.choice(costs), quota.largest_cost)
    swell = chance.choice((0.0, 0.5, 1.0, 1.0, 4.0))
    number = int(min(60, load * swell * quota.rate * length / cost))
    if number and chance.random() < 0.3:
        yield Event(at, "calls", place, number, cost, wait * chance.uniform(0.1, 3.0))
    elif number and chance.random() < 0.15:
        yield Event(at, "wait", place, min(number, 10), cost)
    elif number:
        yield Event(at, "stream", place, number, cost, length)


def _trouble(chance: Random, kind: str, at: float, place: int, scale: float, quota: Quota) -> Event:
    cost = min(chance.choice((1, 1, 3)), quota.largest_cost)
    seconds = 0.0
    if kind == "stall":
        seconds = chance.choice((0.1, 2.0, 5.0)) * chance.random() * scale
    elif kind == "jump":
        seconds = chance.choice((-1.0, 1.0)) * chance.choice((0.01, 0.3, 2.0))
    return Event(at, kind, place, chance.randint(1, 9), cost, seconds)

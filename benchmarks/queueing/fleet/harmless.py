"""Where a limiter should do no harm: starts of healthy services, wide service times, many small limits, as data.

Frozen before the law was changed for them. It was tuned on seeds 0 to 4; seeds 5 to 9 were looked at afterwards.
"""

from collections.abc import Iterator
from random import Random

from batchlimit.concurrency.queue import NO_QUEUE
from benchmarks.queueing.fleet.scenario import FleetScenario, Member
from benchmarks.queueing.scenario import Kind, Phase

_CACHE = (Kind(0.7, 0.0005), Kind(0.3, 0.04))
_MIXED = (Kind(0.95, 0.001), Kind(0.05, 1.0))
_NAMED = (Kind(0.95, 0.001, operation="quick"), Kind(0.05, 1.0, operation="slow"))


def _one(name: str, load: float, workers: int, *kinds: Kind, **more: float) -> FleetScenario:
    """One limiter whose callers do not wait."""
    return FleetScenario(name, (Phase(0.0, load, workers),), kinds=kinds, queue=NO_QUEUE, **more)  # type: ignore[arg-type]


def _starts() -> Iterator[FleetScenario]:
    """Counted from the first call: the load is there when the limiter starts."""
    for load, workers, service in (
        (0.5, 20, 0.02),
        (0.7, 20, 0.02),
        (0.8, 10, 0.05),
        (0.5, 4, 0.005),
        (0.5, 2, 0.001),
        (0.5, 100, 0.02),
        (0.5, 20, 0.3),
    ):
        kind = Kind(mean=service)
        yield _one(f"start at {load:g}x, {workers} of {service:g} s", load, workers, kind, measured=0.0, seconds=60.0)
    for count, load in ((8, 0.5), (20, 0.5), (20, 0.7)):
        yield FleetScenario(
            f"start of {count} at {load:g}x", (Phase(0.0, load, 10),), _late(count), queue=NO_QUEUE, measured=0.0,
            seconds=60.0,
        )  # fmt: skip
    for count, load in ((8, 3.0), (20, 2.0), (20, 3.0)):
        name = f"start of {count} at {load:g}x"
        yield FleetScenario(name, (Phase(0.0, load, 10),), _late(count), measured=0.0, seconds=60.0)
    yield FleetScenario("20 cold at 3x", (Phase(0.0, 3.0, 10),), (Member(),) * 20, measured=0.0, seconds=60.0)


def _late(count: int) -> tuple[Member, ...]:
    """Limiters that start within two seconds, at any time of the day."""
    random = Random(f"starts of {count}")
    of_day = random.uniform(0, 1000)
    joins = [0.0, *(random.uniform(0, 2) for _ in range(count - 1))]
    return tuple(Member(joins=each, skew=of_day) for each in joins)


def _wide() -> Iterator[FleetScenario]:
    for load in (0.8, 1.5):
        yield _one(f"cache, {load:g}x", load, 20, *_CACHE, seconds=80.0)
    for load in (0.7, 1.5):
        yield _one(f"CV 3, {load:g}x", load, 20, Kind(cv=3.0), seconds=80.0)
    yield _one("95 % 1 ms and 5 % 1 s, unnamed, 1.5x", 1.5, 20, *_MIXED, deadline=5.0, seconds=120.0)
    yield _one("95 % 1 ms and 5 % 1 s, named, 1.5x", 1.5, 20, *_NAMED, deadline=5.0, seconds=120.0)
    for load in (0.8, 1.5):
        yield _one(
            f"calls of 5 s, CV 1, {load:g}x", load, 20, Kind(mean=5.0, cv=1.0), deadline=30.0, measured=60.0,
            seconds=600.0,
        )  # fmt: skip


def _many() -> Iterator[FleetScenario]:
    kinds = (Kind(mean=0.1),)
    for count in (50, 200):
        name = f"{count} at 2x, 200 workers"
        yield FleetScenario(name, (Phase(0.0, 2.0, 200),), (Member(),) * count, kinds, seconds=120.0)
    apart = tuple(Member(skew=float(place)) for place in range(8))
    yield FleetScenario("8 at 2x, clocks 1 s apart", (Phase(0.0, 2.0, 10),), apart, seconds=300.0)
    for name, skew in (("one clock", 0.0), ("clocks 2 s apart", 2.0)):
        yield FleetScenario(
            f"8 servers at .95x, refused callers ask another, {name}",
            (Phase(0.0, 0.95, 10),),
            tuple(Member(skew=skew * place) for place in range(8)),
            queue=NO_QUEUE,
            seconds=120.0,
            servers=8,
            tries=2,
        )


HARMLESS = {each.name: each for each in (*_starts(), *_wide(), *_many())}

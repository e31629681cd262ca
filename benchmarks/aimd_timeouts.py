"""The timeout of AIMD that loses least where nobody knows how long calls take, simulated.

    python -m benchmarks.aimd_timeouts [--seconds 300]

Each figure is the answers in time over those of the best limiter, in the worst of four cases. A case has 1 or 4
limiters before 10 workers, and .7x or 2x their capacity; each limiter has a least limit of 1. The figures are the same
every time, on every machine.
"""

import argparse
from collections.abc import Iterator

from batchlimit.concurrency.queue import Queue
from batchlimit.laws import AIMD
from benchmarks.markdown import table
from benchmarks.queueing.fleet.run import FleetRun
from benchmarks.queueing.fleet.scenario import FleetScenario, Member
from benchmarks.queueing.scenario import Kind, Phase

CALLS, TIMEOUTS = (0.05, 0.3, 1.0), (0.1, 0.2, 0.5, 1.0, 5.0)
"""How long a call takes in the mean, and the timeouts (s)."""


def main() -> None:
    """Print a row for each mean of the calls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="of a run, simulated")
    seconds = parser.parse_args().seconds
    rows = [[f"{mean:g} s", *(f"{_worst(mean, timeout, seconds):.2f}" for timeout in TIMEOUTS)] for mean in CALLS]
    print(table(["calls take", *(f"timeout {timeout:g} s" for timeout in TIMEOUTS)], rows))


def _worst(mean: float, timeout: float, seconds: float) -> float:
    return min(
        FleetRun(scenario, lambda _: AIMD(timeout=timeout, minimum=1), 0).figures().goodput
        for scenario in _scenarios(mean, seconds)
    )


def _scenarios(mean: float, seconds: float) -> Iterator[FleetScenario]:
    deadline = max(1.0, 6 * mean)
    queue = Queue(100, max_wait=deadline / 2)
    for count in (1, 4):
        for load in (0.7, 2.0):
            name = f"{count} at {load:g}x, calls of {mean:g} s"
            yield FleetScenario(
                name,
                (Phase(0.0, load, 10),),
                (Member(),) * count,
                (Kind(mean=mean),),
                deadline=deadline,
                queue=queue,
                seconds=seconds,
                measured=seconds / 4,
            )


if __name__ == "__main__":
    main()

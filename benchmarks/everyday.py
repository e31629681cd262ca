"""Small limits over several limiter instances, simulated beside one plain bucket that every call asks.

    python -m benchmarks.everyday [--quick]

The same every time, on every machine: virtual time, equal arrivals, a store 1 ms away. A cell is the share of what the
plain bucket admits, where the instances call `try_acquire` at .9, 2 and 10 times the rate. Exit status 1 if a cell is
below 97 %, or a window has more than burst + rate * T.
"""

import argparse
import sys
from collections.abc import Iterator
from itertools import product

from benchmarks.markdown import table
from benchmarks.scenarios import Scenario, steady
from benchmarks.virtual import OURS, simulated

PLAIN = "per call"
RATES = {"1/minute": 1 / 60, "1/s": 1.0, "10/s": 10.0, "100/s": 100.0}
BURSTS = (1, 2, 5, 10, 50)
INSTANCES = (1, 2, 4, 8, 20)
DEMANDS = (0.9, 2, 10)
_GOAL = 0.97
_TOKENS = 60
"""A run lasts until the plain bucket has refilled so many times its burst, or so many tokens; 20 s at the least."""


def share(rate: str, burst: int, instances: int, demand: float) -> tuple[float, float]:
    """Return what is admitted, as a part of what the plain bucket admits, and the tokens of excess."""
    scenario = Scenario(f"{rate} burst {burst}", instances, steady(demand))
    seconds = max(20.0, max(_TOKENS, 2 * burst) / RATES[rate])
    found, plain = (simulated(scenario, who, seconds) for who in (OURS, PLAIN))
    return found.admitted / max(1, plain.admitted), found.excess


def rows(rates: tuple[str, ...], bursts: tuple[int, ...]) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Yield each quota, and the shares for all numbers of instances, demand by demand."""
    for rate, burst in product(rates, bursts):
        yield f"{rate} burst {burst}", [share(rate, burst, n, demand) for n, demand in product(INSTANCES, DEMANDS)]


def main() -> int:
    """Measure, and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four quotas")
    chosen = (("1/s", "100/s"), (1, 5)) if parser.parse_args().quick else (tuple(RATES), BURSTS)
    found = dict(rows(*chosen))
    head = ["quota", *(f"{n} instance{'s' * (n > 1)}" for n in INSTANCES)]
    each = len(DEMANDS)
    cells = [
        [quota, *(" / ".join(f"{part:.3f}" for part, _ in shares[i : i + each]) for i in range(0, len(shares), each))]
        for quota, shares in found.items()
    ]
    print(table(head, cells))
    worst = min(part for shares in found.values() for part, _ in shares)
    excess = max(over for shares in found.values() for _, over in shares)
    print(f"least: {worst:.3f} (goal {_GOAL}); excess: {excess:.2f} tokens")
    return int(worst < _GOAL or excess > 0.0)


if __name__ == "__main__":
    sys.exit(main())

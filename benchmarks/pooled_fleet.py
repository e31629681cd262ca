"""Is one limit of the fleet, the sum of what its limiters find, better than their limits apart? Simulated.

    python -m benchmarks.pooled_fleet [--seconds 180] [--laws PATTERN] [--only PATTERN]

The same every time, on every machine. Half a minute of a processor for each row.
"""

import argparse
import re
from dataclasses import replace

from benchmarks.markdown import table
from benchmarks.queueing.fleet.contestants import CONTESTANTS
from benchmarks.queueing.fleet.pooled import PooledRun
from benchmarks.queueing.fleet.run import FleetRun
from benchmarks.queueing.fleet.scenario import SCENARIOS

NAMES = ("4 at 0.7x", "4 at 2x", "20 at 2x", "loads 8:4:2:1, .7x", "loads 8:4:2:1, 2x")
LAWS = ("AIMD, 200 ms", "Knee")


def main() -> None:
    """Print a table: answers in time over those of the best limiter, and how the sum of limits creeps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0, help="simulated seconds of a run")
    parser.add_argument("--laws", default="", help="of the laws, those whose name matches this pattern")
    parser.add_argument("--only", default="", help="of the scenarios, those whose name matches this pattern")
    chosen = parser.parse_args()
    names = [name for name in NAMES if re.search(chosen.only, name)]
    laws = [law for law in LAWS if re.search(chosen.laws, law)]
    head = ["law", "scenario", "apart", "one limit", "creep apart", "creep of one limit"]
    print(table(head, [row(law, name, chosen.seconds) for law in laws for name in names]))


def row(law: str, name: str, seconds: float) -> list[str]:
    """Run both, by the same callers."""
    scenario = replace(SCENARIOS[name], seconds=seconds)
    apart, one = (kind(scenario, CONTESTANTS[law], 0).figures() for kind in (FleetRun, PooledRun))
    return [
        law, name, f"{apart.goodput:.2f}", f"{one.goodput:.2f}", f"{apart.creep:.2f}", f"{one.creep:.2f}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()

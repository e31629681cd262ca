"""How long an import takes, beside `import redis`: each several times, in a fresh process of its own."""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Run as a file, Python looks beside it; what it needs lies in the checkout around it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.figures import Figure, as_json, ran_on

FLOOR = "import redis"
IMPORTS = [
    "import batchlimit",
    "from batchlimit import RateLimiter",
    "from batchlimit import AsyncRateLimiter",
    "from batchlimit import ConcurrencyLimiter",
    "from batchlimit import AsyncConcurrencyLimiter",
    "from batchlimit import *",
]
_AT_MOST = 1.15
"""Times as long as `import redis`."""
# Of the processor: others may have the machine.
_TIMED = "import sys, time; begin = time.process_time(); {}; print(time.process_time() - begin, len(sys.modules))"


def figures(rounds: int) -> Iterator[Figure]:
    """Every import in turn, so many rounds; one before them compiles what is imported, for all alike."""
    taken: dict[str, list[tuple[float, int]]] = {statement: [] for statement in (FLOOR, *IMPORTS)}
    with tempfile.TemporaryDirectory() as bytecode:
        for _ in range(rounds + 1):
            for statement, found in taken.items():
                found.append(_once(statement, bytecode))
    medians = {statement: statistics.median(each[0] for each in found[1:]) for statement, found in taken.items()}
    for statement, seconds in medians.items():
        yield Figure(statement, seconds * 1e3, "ms", note=f"{taken[statement][0][1]} modules")
    for statement in IMPORTS:
        target = _AT_MOST if statement == "import batchlimit" else None
        yield Figure(f"{statement} / {FLOOR}", medians[statement] / medians[FLOOR], at_most=target)


def _once(statement: str, bytecode: str) -> tuple[float, int]:
    program = [sys.executable, "-c", _TIMED.format(statement)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode}
    run = subprocess.run(program, env=environment, check=True, capture_output=True, text=True)
    seconds, modules = run.stdout.split()
    return float(seconds), int(modules)


def main() -> None:
    """Print one figure a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="how often each is imported (default 11)")
    parser.add_argument("--json", action="store_true", help="print one document instead of lines")
    args = parser.parse_args()
    found = list(figures(args.rounds))
    print(as_json(found) if args.json else "\n".join([ran_on(), *map(str, found)]))


if __name__ == "__main__":
    main()

"""How long the test-suite of an example service takes, in random order on four workers of pytest-xdist, ten times.

    python -m benchmarks.suite [--times 10] [--workers 4] [--seed 1] [FILE...]

The service is examples/login_codes.py, which limits to 5 a minute and 100 a day. The suite's own time is from the start
of its first test to the end of its last one, on all workers together. To start pytest and to import the service takes
as long as it did without limits, and is told apart. pytest-randomly shuffles, by another seed each time.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, ran_on

_ROOT = Path(__file__).parents[1]
_SUITE = "examples/tests/test_login_codes.py"
_SAYS = "the tests ran for "
_reports: list[tuple[float, float]] = []


def pytest_runtest_logreport(report: Any) -> None:
    """Note when a part of a test began and ended: this file is a plugin of pytest as well."""
    _reports.append((report.start, report.stop))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how long all tests together took."""
    if _reports:
        begun, ended = min(start for start, _ in _reports), max(stop for _, stop in _reports)
        terminalreporter.write_line(f"{_SAYS}{ended - begun:.6f} s")


def run(files: list[str], workers: int, seed: int) -> tuple[Figure, Figure, bool]:
    """Run the suite once; return its own time, the time of the whole command, and whether all tests passed."""
    options = ["-q", "-n", str(workers), "-p", "no:cacheprovider", "-p", "benchmarks.suite", "--import-mode=importlib"]
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", *options, f"--randomly-seed={seed}", *files]
    began = time.perf_counter()
    ended = subprocess.run(command, check=False, cwd=_ROOT, capture_output=True, text=True)
    whole = time.perf_counter() - began
    found, passed = re.search(rf"{_SAYS}([\d.]+) s", ended.stdout), re.search(r"(\d+) passed", ended.stdout)
    if ended.returncode or found is None or passed is None:
        print(ended.stdout + ended.stderr)
        return Figure(f"seed {seed}", 0.0), Figure("whole", whole, "s"), False
    own = Figure(f"seed {seed}: the suite", float(found[1]), "s", at_most=1, note=f"{passed[0]}, {workers} workers")
    return own, Figure("the whole command, with pytest and the imports", whole, "s"), True


def main() -> None:
    """Run it so many times, and fail if a test did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=[_SUITE], metavar="FILE", help=f"default {_SUITE}")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    chosen = parser.parse_args()
    print(ran_on())
    failures = 0
    for seed in range(chosen.seed, chosen.seed + chosen.times):
        own, whole, is_passed = run(chosen.files, chosen.workers, seed)
        failures += not is_passed
        print(own, whole, sep="\n", flush=True)
    print(Figure("runs with a failure", failures, at_most=0, note=f"of {chosen.times}"))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()

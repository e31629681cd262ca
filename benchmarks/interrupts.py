"""Storms of signals that raise during the calls of each kind of limiter: is all as before, or was something lost?

    python -m benchmarks.interrupts [--raised 1000000] [--kinds NAME...] [--seconds 400] [--jobs 2]

Each storm is a process of its own: `python -m tests.life.signal_storm NAME RAISED SECONDS`. It ends with so many
signals, or after so many seconds. Then nobody may wait, no permit may be out, and ten calls in a row have to succeed.
Exit status 1 if not.
"""

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from benchmarks.figures import ran_on
from benchmarks.markdown import table
from tests.life.signal_storm import ALL_KINDS, LONGEST


class Played(NamedTuple):
    kind: str
    raised: int
    seconds: float
    at_rest: bool
    said: str


def play(kind: str, raised: int, seconds: float) -> Played:
    begun = time.monotonic()
    program = [sys.executable, "-m", "tests.life.signal_storm", kind, f"{raised}", f"{seconds}"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    was_raised = int(done.stdout.split()[0]) if done.stdout else 0
    return Played(kind, was_raised, time.monotonic() - begun, done.returncode == 0, done.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raised", type=int, default=1_000_000)
    parser.add_argument("--kinds", nargs="+", default=list(ALL_KINDS), choices=ALL_KINDS)
    parser.add_argument("--seconds", type=float, default=LONGEST)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    with ThreadPoolExecutor(options.jobs) as pool:
        played = list(pool.map(partial(play, raised=options.raised, seconds=options.seconds), options.kinds))
    rows = [[one.kind, f"{one.raised:,}", f"{one.seconds:.0f} s", "yes" if one.at_rest else "NO"] for one in played]
    print(table(["kind", "signals", "time", "all as before"], rows))
    print(ran_on())
    for one in played:
        if not one.at_rest:
            print(one.kind, one.said, sep="\n", file=sys.stderr)
    sys.exit(not all(one.at_rest for one in played))


if __name__ == "__main__":
    main()

"""Permits that processes share: never more than N at once, faults included, and how much of N is used.

    python -m benchmarks.shared_permits audit        a row for each fault, threads and tasks; five minutes
    python -m benchmarks.shared_permits throughput   beside a ZSET semaphore, redis-rate-limiters and redis-py's Lock
    python -m benchmarks.shared_permits largest      more and more permits a second
    python -m benchmarks.shared_permits weights      who gets how much, by weight

Each holder logs when it began and ended to work under its permit; the logs of all processes are replayed. It starts the
servers that it needs. The exit status is 1 if more were held at once than is promised. `audit --used 3` has processes
use their leases for three times as long as the store keeps them: that breaks the promise, and the audit has to notice.
"""

import argparse
import os
import sys

from batchlimit.shared.held_slots import USED
from benchmarks.figures import ran_on
from benchmarks.shared_permits.audit import APIS, audit
from benchmarks.shared_permits.faults import FAULTS
from benchmarks.shared_permits.throughput import LARGEST, SETTINGS, throughput
from benchmarks.shared_permits.weights import weights

PARTS = ["audit", "throughput", "largest", "weights"]


def main(words: list[str] | None = None) -> int:
    """Do what was asked for; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shared_permits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=PARTS, metavar="|".join(PARTS))
    parser.add_argument("--only", default="", metavar="NAME", help="faults or settings with NAME in theirs")
    parser.add_argument("--api", choices=APIS, help="of the audit (default: both)")
    parser.add_argument("--used", type=float, default=USED, help="of the audit: the part of a lease that is used")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each setting (default: 5)")
    chosen = parser.parse_args(words)
    named = [*FAULTS, *(name for name, _, _ in (*SETTINGS, *LARGEST))]
    if not any(chosen.only in name for name in named):
        parser.error(f"no fault or setting has {chosen.only!r} in its name; there are: {'; '.join(named)}")
    print(f"{ran_on()}; load {os.getloadavg()[0]:.1f}", flush=True)
    kept = True
    for part in chosen.parts:
        print()
        if part == "audit":
            names = [name for name in FAULTS if chosen.only in name]
            kept = audit(names, [chosen.api] if chosen.api else list(APIS), used=chosen.used) and kept
        elif part == "weights":
            kept = weights() and kept
        else:
            settings = SETTINGS if part == "throughput" else LARGEST
            throughput([each for each in settings if chosen.only in each[0]], chosen.seconds)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

"""Faults of all kinds under load, and an audit after each: scripts/chaos [--minutes 30] [--seed 1] | --table | --alerts

One fault after the other, drawn by the seed, at limiters that live as long as the run; a row after each. With --table
every fault once, with new limiters each; writes docs/failures.md, and some rows in docs/performance. With --only the
faults that have NAME in theirs, --times each, with new limiters each. With --alerts a Prometheus watches a fleet with
the rules of deploy/, their times shorter by 120; each alert has to fire by a fault, and to end with it. Exit status: 0
every bound was kept and nothing grew.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.figures import ran_on
from benchmarks.markdown import between_marks
from tests.chaos.alerts.drill import DRILLS
from tests.chaos.alerts.town import FASTER, town
from tests.chaos.crew import Crew
from tests.chaos.fault import nothing
from tests.chaos.growth import growth, settled
from tests.chaos.play import LONG, SHORT, play
from tests.chaos.report import line, markdown, summary
from tests.chaos.row import Row
from tests.chaos.scenario import SCENARIOS
from tests.chaos.stage import single
from tests.chaos.topology import TOPOLOGIES
from tests.servers import redis_binary, valkey_binary

_DOCS = Path(__file__).resolve().parents[2] / "docs"
_SUMMARY = _DOCS / "performance" / "README.md"
_PAGE = _DOCS / "failures.md"
_PROCESSES = 4
_BINARIES = {"valkey": valkey_binary, "redis": redis_binary}


def each_once(binary: str, crew: Crew, name: str = "", times: int = 1) -> Iterator[Row]:
    """Every scenario, or those of a name, so many times, on a server and with limiters of its own."""
    for scenario in [each for each in (*SCENARIOS, *TOPOLOGIES) if name in each.name] * times:
        with single(crew, binary) if scenario.place is single else scenario.place(crew) as stage:
            yield play(scenario, stage, LONG)


def drawn(binary: str, crew: Crew, minutes: float, seed: int) -> Iterator[Row]:
    """Scenarios as the seed has them, at one server and with limiters that live on."""
    dice, deadline, kept = random.Random(seed), time.monotonic() + 60 * minutes, f"seed-{seed}"
    with single(crew, binary) as stage:
        for kind in {(each.policy, each.api, each.relayed): each for each in SCENARIOS}.values():
            # By the first look every limiter is there that there will be.
            yield play(replace(kind, name="nothing", fault=nothing, seconds=0.1), stage, SHORT, kept)
        while time.monotonic() < deadline:
            scenario = dice.choice(SCENARIOS)
            seconds = dice.choice([0.1, 0.3, scenario.seconds, 3.0])
            yield play(replace(scenario, seconds=seconds), stage, LONG, kept)


def drilled(name: str) -> int:
    """See alerts fire; the exit status."""
    print(f"{ran_on()}; all times of the alerts are shorter by {FASTER}", flush=True)
    failed = 0
    with town() as fleet:
        for drill in [each for each in DRILLS if name in each.name]:
            try:
                fired, ended = drill.hold(fleet)
                said = f"fired after {fired:.1f} s, ended after {ended:.1f} s"
            except AssertionError as error:
                failed, said = 1, f"FAILED: {error}"
            print(f"{drill}: {', '.join(sorted(drill.alerts))}: {said}", flush=True)
    return failed


def main() -> int:
    """Play what was asked for; the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="NAME", help="those of this name alone, --times each, with new limiters")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="every fault once; writes the tables of the docs")
    parser.add_argument("--alerts", action="store_true", help="see each alert of deploy/prometheus fire by a fault")
    parser.add_argument("--server", choices=_BINARIES, default="valkey")
    chosen = parser.parse_args()
    if chosen.alerts:
        return drilled(chosen.only or "")
    binary, rows = _BINARIES[chosen.server](), list[Row]()
    print(f"{ran_on()}; {chosen.server}" + ("" if chosen.table else f", seed {chosen.seed}"), flush=True)
    with Crew(_PROCESSES) as crew:
        if chosen.table or chosen.only:
            runs = each_once(binary, crew, chosen.only or "", chosen.times)
        else:
            runs = drawn(binary, crew, chosen.minutes, chosen.seed)
        for row in runs:
            rows.append(row)
            print(line(len(rows), row), flush=True)
    shown = markdown(rows)
    print(f"\n{shown}")
    if chosen.table:
        between_marks(_PAGE, "chaos", f"{ran_on()}; {chosen.server}.\n\n{shown}")
        between_marks(_SUMMARY, "chaos", summary(rows))
        return int(not all(row.kept for row in rows))
    return int(not all(row.kept for row in rows) or _grew(rows))


def _grew(rows: list[Row]) -> bool:
    """Say what each process took at first, in the middle and at the end; whether any of them took more and more.

    The last process is left out: it is killed now and then.
    """
    grown = []
    for process in range(_PROCESSES - 1):
        looks = [row.usage[process] for row in rows if len(row.usage) > process]
        grown += [f"process {process} has grown, {each}" for each in growth(looks)]
        for when, usage in zip(("first", "middle", "end"), settled(looks), strict=True):
            print(f"process {process}, {when}: {usage}")
    print("\n".join(grown or ["nothing has grown"]))
    return bool(grown)


if __name__ == "__main__":
    sys.exit(main())

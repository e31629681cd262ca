"""A fleet of processes on one bucket: excess, use, calls and fairness; rivals; what a hit, a stampede and keys cost.

    python benchmarks/fleet.py [--url embedded://] [--json] [--quick] [--seconds N] [--only NAME] [--round-trip MS]
                               [--API async]

Exit status 1 if any run of ours broke the promise. A target that was missed says `short` and changes nothing else.
"""

import argparse
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import chain

from batchlimit import Quota
from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.audited_fleet.fleet import unwatched
from benchmarks.audited_fleet.plan import Api, Phase, Plan, burst, steady
from benchmarks.audited_fleet.report import Report
from benchmarks.audited_fleet.trial import trial
from benchmarks.contest import rivals, scenarios
from benchmarks.figures import Figure, ran_on, report
from benchmarks.hits import blocks, hit
from benchmarks.keys import sizes
from benchmarks.local import stampede
from benchmarks.memory import passing_keys
from benchmarks.stall import stall
from tests.relay import Relay

_QUOTA = "5000/s burst 1000"  # two cores carry twice that with room for the fleet's own work
_RICH = "10_000/s burst 10_000"
_THREADS = 4
_FLEETS = (1, 4, 8)
_SHORT = 3.0  # seconds a run of those that are many
_RESERVE = 0.5  # alpha: the share of the burst that all instances together may hold


def fleets(url: str, seconds: float, api: Api) -> Iterator[Figure]:
    """Every demand with every number of instances."""
    quota = Quota.parse(_QUOTA)
    for instances in _FLEETS:
        for demand in (0.5, 0.9, 2.0):
            yield from _run(f"{demand}x", url, api, _QUOTA, instances, steady(quota, demand, seconds))
        yield from _run("quiet then 40x", url, api, _QUOTA, instances, burst(quota, 40, seconds))


def rich(url: str, seconds: float, api: Api) -> Iterator[Figure]:
    """The row of the design's table that this machine can carry."""
    yield from _run("0.9x", url, api, _RICH, 4, steady(Quota.parse(_RICH), 0.9, seconds), calls_at_most=1.0)


def _run(
    demand: str,
    url: str,
    api: Api,
    quota: str,
    instances: int,
    phases: tuple[Phase, ...],
    calls_at_most: float | None = None,
) -> Iterator[Figure]:
    shown = trial(Plan(url, quota, f"bench-{secrets.token_hex(4)}", instances, _THREADS, phases, api=api), unwatched)
    name = f"{quota}, {demand}, {instances} instance{'s' * (instances > 1)}"
    law = instances / (_RESERVE * Quota.parse(quota).burst)
    calls = f"{shown.calls:,} for {shown.decisions:,} decisions; the price law says about {law:.2%}"
    yield Figure(f"{name}: excess", shown.excess, "tokens", at_most=0, note=shown.server)
    yield _use(name, shown, demand, len(phases) == 1)
    yield Figure(f"{name}: calls/decision", 100 * shown.calls_per_decision, "%", at_most=calls_at_most, note=calls)
    if demand == "2.0x" and instances > 1:
        yield Figure(f"{name}: Jain", shown.jain, at_least=0.999)
        yield Figure(f"{name}: poorest/richest instance", shown.evenness, at_least=0.95)


def _use(name: str, shown: Report, demand: str, even: bool) -> Figure:
    carried = f"of {shown.offered:,} tokens asked for, {shown.planned:,} planned"
    if even:
        used = 100 * shown.used_share
        return Figure(f"{name}: used", used, "%", at_least=98.0 if demand == "2.0x" else None, note=carried)
    # What overflowed in the quiet half nobody could use: the measure is a bucket that saw the same demand.
    return Figure(f"{name}: used of the ideal", 100 * shown.ideal_share, "%", note=f"an unbatched bucket; {carried}")


def benchmarks(url: str, seconds: float, quick: bool, api: Api) -> dict[str, Callable[[], Iterator[Figure]]]:
    """All there are, by the name that --only takes; the first three run on the chosen API."""
    return {
        "fleets": lambda: fleets(url, seconds, api),
        "rich": lambda: rich(url, seconds, api),
        "scenarios": lambda: scenarios(url, min(seconds, _SHORT), api),
        "rivals": lambda: rivals(url, min(seconds, _SHORT)),
        "stampede": lambda: stampede(url, 5 if quick else 20),
        "hit": lambda: chain(hit(url, 100 if quick else 500), blocks(url)),
        "stall": lambda: stall(url, 4.0, 2 if quick else 10),
        "live-keys": sizes,
        "passing-keys": lambda: passing_keys(100_000 if quick else 1_000_000),
    }


def main() -> int:
    """Run what was asked for; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="embedded://")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--only", choices=benchmarks("", 0, True, Api.THREADS))
    parser.add_argument("--api", type=Api, choices=list(Api), default=Api.THREADS, help="what the callers are")
    parser.add_argument("--round-trip", type=float, help="put a relay before the server that adds so many ms")
    chosen = parser.parse_args()
    seconds = chosen.seconds or (2.0 if chosen.quick else 6.0)
    with _server(chosen.url, chosen.round_trip) as url:
        every = benchmarks(url, seconds, chosen.quick, chosen.api)
        runs = [run for name, run in every.items() if chosen.only in (None, name)]
        callers = f"{_THREADS} {chosen.api.callers} an instance"
        ran = f"{ran_on()}; {callers}, {seconds:g} s a run{_distance(chosen.round_trip)}"
        figures = report((figure for run in runs for figure in run()), as_document=chosen.json, ran=ran)
    return int(any(figure.name.endswith("excess") and figure.verdict == "short" for figure in figures))


@contextmanager
def _server(url: str, round_trip: float | None) -> Iterator[str]:
    """One server for all that follows, as near or far as it is to be."""
    with ExitStack() as stack:
        if url.startswith("embedded://"):
            url = stack.enter_context(closing(EmbeddedStore())).url
        yield stack.enter_context(Relay(url, round_trip / 1000)).url if round_trip else url


def _distance(round_trip: float | None) -> str:
    return f", the server {round_trip:g} ms away" if round_trip else ""


if __name__ == "__main__":
    sys.exit(main())

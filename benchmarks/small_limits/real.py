"""Small limits on a real server, by real processes: ours and a plain bucket in turn; and clients that poll."""

import secrets
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from os import getloadavg

from batchlimit.stores.embedded import EmbeddedStore
from benchmarks.audited_fleet.fleet import unwatched
from benchmarks.audited_fleet.report import Report
from benchmarks.audited_fleet.trial import trial
from benchmarks.figures import Figure, report
from benchmarks.rivals import RIVALS
from benchmarks.scenarios import Scenario, steady
from benchmarks.small_limits.cells import LEAST, PLAIN
from benchmarks.small_limits.told import AMISS, really

_QUOTAS = {"1/s burst 1": 30.0, "10/s burst 2": 15.0, "100/s burst 4": 8.0}
"""Quotas, and the seconds of a run."""
_INSTANCES, _DEMANDS = 8, (2, 10)
_POLLED, _SECONDS = "5/minute", 40.0


def cells(url: str) -> Iterator[Figure]:
    """What ours admits over what the plain script does, one after the other."""
    for (quota, seconds), demand in product(_QUOTAS.items(), _DEMANDS):
        scenario = Scenario(quota, _INSTANCES, steady(demand))
        plain = trial(scenario.plan(url, seconds, RIVALS[PLAIN], threads=2), unwatched)
        ours = trial(scenario.plan(url, seconds, threads=2), unwatched)
        name = f"{quota}, {_INSTANCES} processes, {demand}x"
        note = f"{ours.admitted} and {plain.admitted}; {_told(ours, plain)}"
        yield Figure(f"{name}: of the plain script", ours.admitted / plain.admitted, at_least=LEAST, note=note)
        yield Figure(f"{name}: excess", ours.excess, "tokens", at_most=0.0, note=f"load {getloadavg()[0]:.1f}")


def _told(ours: Report, plain: Report) -> str:
    return f"Jain {ours.jain:.3f} and {plain.jain:.3f}; {ours.calls_per_decision:.2f} calls a decision"


def clients(url: str) -> Iterator[Figure]:
    """How long a client waits over what it was told."""
    for instances in (4, 8):
        found = really(url, _POLLED, instances, _SECONDS, f"bench-{secrets.token_hex(4)}")
        for how, waits in found.items():
            note = f"told {waits.told[0]:.1f} s, admitted after {waits.real[0]:.1f}; {len(waits.real)} times"
            name = f"{_POLLED}, {instances} instances: a client that {how}, real / told"
            yield Figure(name, waits.ratio, at_least=1 - AMISS, at_most=1 + AMISS, note=note)


def main(url: str) -> int:
    """Measure and print; the exit status."""
    if url == "embedded://":
        with closing(EmbeddedStore()) as store:
            return main(store.url)
    found = report((each for part in (cells, clients) for each in part(url)), as_document=False)
    return int(any(each.verdict == "short" for each in found))

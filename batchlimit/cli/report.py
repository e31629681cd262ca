"""The figures of one run: what the audit, the callers' logs and the server's own counters say about it."""

import math
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import repeat, zip_longest
from typing import Any

from batchlimit import Quota
from batchlimit.cli.audit import Admission, allowance, excess
from batchlimit.cli.fleet import FleetLog
from batchlimit.cli.host import SPELL, HostLog
from batchlimit.cli.plan import Plan
from batchlimit.cli.server import Work


@dataclass(frozen=True, slots=True)
class Latency:
    """How long calls took from the caller's side, in microseconds; nan where there were none."""

    p50_us: float
    p99_us: float


@dataclass(frozen=True, slots=True)
class Report:
    """What a run showed. Tokens unless it says decisions or calls; shares are parts of 1, nan where there are none."""

    excess: float
    """By how much the worst window broke the promise; 0.0 if it was kept."""
    planned: int
    offered: int
    """What the callers asked for; less than planned where the machine could not keep up."""
    admitted: int
    seconds: float
    """From the common start to the last call's end."""
    used_share: float
    """Admitted, of the smaller of what was offered and burst + rate * seconds."""
    ideal_share: float
    """Admitted, of what an unbatched bucket would have admitted of the same offers at the same times."""
    jain: float
    """Jain's index of what the hosts got: 1 is perfectly even, 1/hosts is all for one."""
    evenness: float
    """The poorest host's tokens by the richest one's."""
    decisions: int
    calls: int
    """Requests to the server, counted by the server, connecting included; by the hosts if there is no server."""
    calls_by_hosts: int
    """The same by the limiters' own count: takes and give-backs."""
    calls_per_decision: float
    cpu_us_per_decision: float
    """Processor time of the server."""
    admitted_latency: Latency
    refused_latency: Latency
    host_admitted: list[int]
    server: str
    machine: str

    @property
    def promise_kept(self) -> bool:
        """Whether no window of time shows more admissions than the quota allows."""
        return self.excess == 0

    def as_json(self) -> dict[str, Any]:
        """Plain values, with None for nan, which JSON does not know."""
        return {name: _plain(value) for name, value in asdict(self).items()}


def report(plan: Plan, log: FleetLog, work: Work | None, server: str) -> Report:
    """Draw up the figures; `work` is what the server did from before the start to after the end, if there is one."""
    quota = Quota.parse(plan.quota)
    spells = [plan.cost * sum(column) for column in zip_longest(*(host.offered for host in log.hosts), fillvalue=0)]
    shares = [plan.cost * len(host.admitted) // 2 for host in log.hosts]
    decisions, offered, admitted = sum(map(_decisions, log.hosts)), sum(spells), sum(shares)
    seconds = max(host.ended for host in log.hosts) - log.start
    by_hosts = sum(host.calls for host in log.hosts)
    calls = work.calls if work else by_hosts
    return Report(
        excess=excess(_admissions(log.hosts, plan.cost), quota),
        planned=round(plan.cost * plan.calls),
        offered=offered,
        admitted=admitted,
        seconds=seconds,
        used_share=_share(admitted, min(offered, allowance([math.inf], seconds, quota))),
        ideal_share=_share(admitted, allowance(spells, SPELL, quota)),
        jain=_share(sum(shares) ** 2, len(shares) * sum(share**2 for share in shares)),
        evenness=_share(min(shares), max(shares)),
        decisions=decisions,
        calls=calls,
        calls_by_hosts=by_hosts,
        calls_per_decision=_share(calls, decisions),
        cpu_us_per_decision=_share(work.cpu * 1e6, decisions) if work else math.nan,
        admitted_latency=_latency(after - before for before, after, _ in _admissions(log.hosts, plan.cost)),
        refused_latency=_latency(took for host in log.hosts for took in host.refused),
        host_admitted=shares,
        server=server,
        machine=f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    )


def _admissions(hosts: Iterable[HostLog], cost: int) -> Iterator[Admission]:
    for host in hosts:
        yield from zip(host.admitted[::2], host.admitted[1::2], repeat(cost))


def _decisions(host: HostLog) -> int:
    return len(host.admitted) // 2 + len(host.refused)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _latency(seconds: Iterable[float]) -> Latency:
    ranked = sorted(seconds)
    return Latency(_at(ranked, 0.5) * 1e6, _at(ranked, 0.99) * 1e6)


def _at(ranked: Sequence[float], quantile: float) -> float:
    return ranked[min(len(ranked) - 1, int(len(ranked) * quantile))] if ranked else math.nan


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value

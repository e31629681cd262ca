"""The figures of one run: what the audit, the callers' logs and the server's own counters say about it."""

import math
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from typing import Any

from batchlimit import Quota
from batchlimit.fleet.audit import Admission, allowance, equals, evenness, excess, jain, share, starvation
from batchlimit.fleet.caller import SPELL, Call
from batchlimit.fleet.fleet import FleetLog
from batchlimit.fleet.instance import InstanceLog
from batchlimit.fleet.plan import Plan
from batchlimit.fleet.server import Work


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
    """Jain's index of what hosts of equal demand got: 1 is perfectly even, 1/hosts is all for one. The worst, if there
    are several such groups."""
    evenness: float
    """Among hosts of equal demand, the poorest one's tokens by the richest one's; the worst of the groups."""
    starvation: float
    """The longest time (s) that a host was refused whatever it asked for."""
    decisions: int
    calls: int
    """Requests to the server, counted by the server, connecting included; by the hosts if there is no server."""
    calls_by_hosts: int
    """The same by the limiters' own count: takes and give-backs."""
    calls_per_decision: float
    cpu_us_per_decision: float
    """Processor time of the server."""
    waits: int
    """Decisions that waited for the store: their callers asked it, or stood in line behind one that did."""
    waits_share: float
    admitted_latency: Latency
    refused_latency: Latency
    hit_latency: Latency
    """Of decisions from memory."""
    miss_latency: Latency
    """Of decisions that waited for the store."""
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
    spells = [sum(column) for column in zip_longest(*(host.offered for host in log.hosts), fillvalue=0)]
    shares = [sum(call.tokens for call in host.admitted) for host in log.hosts]
    groups = [[shares[host] for host in group] for group in equals(plan)]
    decisions, offered, admitted = sum(map(_decisions, log.hosts)), sum(spells), sum(shares)
    waits = sum(call.waited for host in log.hosts for call in _calls(host))
    seconds = max(host.ended for host in log.hosts) - log.start
    by_hosts = sum(host.calls for host in log.hosts)
    calls = work.calls if work else by_hosts
    return Report(
        excess=excess(_admissions(log.hosts), quota),
        planned=round(plan.tokens),
        offered=offered,
        admitted=admitted,
        seconds=seconds,
        used_share=share(admitted, min(offered, allowance([math.inf], seconds, quota))),
        ideal_share=share(admitted, allowance(spells, SPELL, quota)),
        jain=min(map(jain, groups), default=math.nan),
        evenness=min(map(evenness, groups), default=math.nan),
        starvation=max(map(starvation, log.hosts)),
        decisions=decisions,
        calls=calls,
        calls_by_hosts=by_hosts,
        calls_per_decision=share(calls, decisions),
        cpu_us_per_decision=share(work.cpu * 1e6, decisions) if work else math.nan,
        waits=waits,
        waits_share=share(waits, decisions),
        admitted_latency=_latency(call for host in log.hosts for call in host.admitted),
        refused_latency=_latency(call for host in log.hosts for call in host.refused),
        hit_latency=_latency(call for host in log.hosts for call in _calls(host) if not call.waited),
        miss_latency=_latency(call for host in log.hosts for call in _calls(host) if call.waited),
        host_admitted=shares,
        server=server,
        machine=f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    )


def _calls(host: InstanceLog) -> Iterator[Call]:
    return chain(host.admitted, host.refused)


def _admissions(hosts: Iterable[InstanceLog]) -> Iterator[Admission]:
    return (call[:3] for host in hosts for call in host.admitted)


def _decisions(host: InstanceLog) -> int:
    return len(host.admitted) + len(host.refused)


def _latency(calls: Iterable[Call]) -> Latency:
    ranked = sorted(call.after - call.before for call in calls)
    return Latency(_at(ranked, 0.5) * 1e6, _at(ranked, 0.99) * 1e6)


def _at(ranked: Sequence[float], quantile: float) -> float:
    return ranked[min(len(ranked) - 1, int(len(ranked) * quantile))] if ranked else math.nan


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value

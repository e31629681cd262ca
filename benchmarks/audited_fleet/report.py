"""The figures of one run, from the audit, the callers' logs and the server's counters."""

import math
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from typing import Any

from batchlimit import Quota
from benchmarks.audited_fleet.audit import Admission, allowance, equals, evenness, excess, jain, share, starvation
from benchmarks.audited_fleet.caller import SPELL, Call
from benchmarks.audited_fleet.fleet import FleetLog
from benchmarks.audited_fleet.instance import InstanceLog
from benchmarks.audited_fleet.plan import Plan
from benchmarks.audited_fleet.server import Work


@dataclass(frozen=True, slots=True)
class Latency:
    """How long calls took their callers, in microseconds; nan if there were none."""

    p50_us: float
    p99_us: float


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run, in tokens unless a name says otherwise. Shares are parts of 1, or nan if undefined."""

    excess: float
    """By how many tokens the worst window exceeded the quota; 0.0 if none did."""
    planned: int
    offered: int
    """The tokens that callers asked for; fewer than planned if the machine could not keep up."""
    admitted: int
    seconds: float
    """From the common start to the last call's end."""
    used_share: float
    """admitted / min(offered, burst + rate * seconds)."""
    ideal_share: float
    """Admitted, as a share of what an unbatched bucket would have admitted of the same demand."""
    jain: float
    """Jain's index of the tokens of processes with equal demand: 1 is perfectly even, 1/n means one of n got
    everything. The worst of several groups."""
    evenness: float
    """Among processes of equal demand, the least tokens divided by the most; the worst of several groups."""
    starved_seconds: float
    """The longest time in which a process was only refused."""
    decisions: int
    calls: int
    """Requests to the server by its own count, connecting included; by the limiters' count if there is no server."""
    calls_by_limiters: int
    """Requests by the limiters' count: takes and give-backs."""
    calls_per_decision: float
    cpu_us_per_decision: float
    """Processor time of the server."""
    waits: int
    """Decisions that waited for the store: their callers asked it, or queued behind one that did."""
    waits_share: float
    admitted_latency: Latency
    refused_latency: Latency
    hit_latency: Latency
    """Of decisions from memory."""
    miss_latency: Latency
    """Of decisions that waited for the store."""
    admitted_by_process: list[int]
    server: str
    machine: str

    @property
    def promise_kept(self) -> bool:
        """Whether no window of time has more admissions than the quota allows."""
        return self.excess == 0

    def as_json(self) -> dict[str, Any]:
        """Return plain values, with None for nan, which JSON does not have."""
        return {name: _plain(value) for name, value in asdict(self).items()}


def report(plan: Plan, log: FleetLog, work: Work | None, server: str) -> Report:
    """Compute the figures of a run.

    Args:
        plan: the plan that was run.
        log: the logs of all processes.
        work: the server's counters for the run; None without a server.
        server: the server's name and version.
    """
    quota = Quota.parse(plan.quota)
    spells = [sum(column) for column in zip_longest(*(process.offered for process in log.processes), fillvalue=0)]
    shares = [sum(call.tokens for call in process.admitted) for process in log.processes]
    groups = [[shares[process] for process in group] for group in equals(plan)]
    decisions, offered, admitted = sum(map(_decisions, log.processes)), sum(spells), sum(shares)
    waits = sum(call.waited for process in log.processes for call in _calls(process))
    seconds = max(process.ended for process in log.processes) - log.start
    by_processes = sum(process.calls for process in log.processes)
    calls = work.calls if work else by_processes
    return Report(
        excess=excess(_admissions(log.processes), quota),
        planned=round(plan.tokens),
        offered=offered,
        admitted=admitted,
        seconds=seconds,
        used_share=share(admitted, min(offered, allowance([math.inf], seconds, quota))),
        ideal_share=share(admitted, allowance(spells, SPELL, quota)),
        jain=min(map(jain, groups), default=math.nan),
        evenness=min(map(evenness, groups), default=math.nan),
        starved_seconds=max(map(starvation, log.processes)),
        decisions=decisions,
        calls=calls,
        calls_by_limiters=by_processes,
        calls_per_decision=share(calls, decisions),
        cpu_us_per_decision=share(work.cpu * 1e6, decisions) if work else math.nan,
        waits=waits,
        waits_share=share(waits, decisions),
        admitted_latency=_latency(call for process in log.processes for call in process.admitted),
        refused_latency=_latency(call for process in log.processes for call in process.refused),
        hit_latency=_latency(call for process in log.processes for call in _calls(process) if not call.waited),
        miss_latency=_latency(call for process in log.processes for call in _calls(process) if call.waited),
        admitted_by_process=shares,
        server=server,
        machine=f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    )


def _calls(process: InstanceLog) -> Iterator[Call]:
    return chain(process.admitted, process.refused)


def _admissions(processes: Iterable[InstanceLog]) -> Iterator[Admission]:
    return (call[:3] for process in processes for call in process.admitted)


def _decisions(process: InstanceLog) -> int:
    return len(process.admitted) + len(process.refused)


def _latency(calls: Iterable[Call]) -> Latency:
    ranked = sorted(call.after - call.before for call in calls)
    return Latency(_at(ranked, 0.5) * 1e6, _at(ranked, 0.99) * 1e6)


def _at(ranked: Sequence[float], quantile: float) -> float:
    return ranked[min(len(ranked) - 1, int(len(ranked) * quantile))] if ranked else math.nan


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value

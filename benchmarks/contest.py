"""Scenarios run by real processes: ours in all of them, and its rivals beside it in those that tell them apart.

Runs are short, so tokens that instances have leased and not spent at the end weigh: in 2 s they are 2 % of all.
"""

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.audited_fleet.fleet import unwatched
from benchmarks.audited_fleet.plan import Api, ours
from benchmarks.audited_fleet.report import Report
from benchmarks.audited_fleet.trial import trial
from benchmarks.figures import Figure
from benchmarks.rivals import RIVALS
from benchmarks.scenarios import SCENARIOS, Scenario

_CONTESTED = ("0.9x", "2x", "6x", "quiet then 40x")


def scenarios(url: str, seconds: float, api: Api) -> Iterator[Figure]:
    """Ours in every scenario."""
    for name, scenario in SCENARIOS.items():
        plan = replace(scenario.plan(url, seconds), api=api)
        yield from _figures(name, scenario, trial(plan, unwatched), ours=True)


def rivals(url: str, seconds: float) -> Iterator[Figure]:
    """Ours and every rival in turn, on the same machine in the same minutes; all of them with threads."""
    for name in _CONTESTED:
        for who, limiter in {"ours": ours, **RIVALS}.items():
            shown = trial(SCENARIOS[name].plan(url, seconds, limiter), unwatched)
            yield from _figures(f"{name}, {who}", SCENARIOS[name], shown, ours=who == "ours")


def _figures(name: str, scenario: Scenario, shown: Report, *, ours: bool) -> Iterator[Figure]:
    ran = f"{scenario.quota}, {scenario.instances} instances, {shown.server}"
    yield Figure(f"{name}: excess", shown.excess, "tokens", at_most=0 if ours else None, note=ran)
    if scenario.is_even:
        asked = f"{shown.admitted:,} of {shown.offered:,} tokens asked for, {shown.planned:,} planned"
        yield Figure(f"{name}: used", 100 * shown.used_share, "%", note=asked)
    else:
        asked = f"of an unbatched bucket; {shown.offered:,} tokens asked for, {shown.planned:,} planned"
        yield Figure(f"{name}: used of the ideal", 100 * shown.ideal_share, "%", note=asked)
    counted = f"{shown.calls:,} for {shown.decisions:,} decisions"
    yield Figure(f"{name}: calls/decision", 100 * shown.calls_per_decision, "%", note=counted)
    waited = f"for {shown.miss_latency.p50_us:,.0f} us, p99 {shown.miss_latency.p99_us:,.0f}; from memory {_hit(shown)}"
    yield Figure(f"{name}: waited for the store", 100 * shown.waits_share, "%", note=waited)
    if len(set(scenario.weights)) < scenario.instances:
        yield Figure(f"{name}: Jain", shown.jain, note="instances of equal demand")
        yield Figure(f"{name}: poorest/richest instance", shown.evenness)
    yield Figure(f"{name}: longest without an admission", 1000 * shown.starved_seconds, "ms")


def _hit(shown: Report) -> str:
    return f"{shown.hit_latency.p50_us:.1f} us, p99 {shown.hit_latency.p99_us:.1f}"

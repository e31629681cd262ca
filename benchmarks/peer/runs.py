"""One run of one contender, of every kind, and the measures that are taken of it."""

import secrets
from collections.abc import Callable
from operator import attrgetter

from benchmarks.peer.bench import Bench, Run
from benchmarks.peer.book import Measures
from benchmarks.peer.contender import FLOOR, Terms
from benchmarks.peer.crowd import Crowd
from benchmarks.peer.latency import PERCENTILES, Punctual, Waits, percentile
from benchmarks.peer.load import Hammer, Pace
from benchmarks.peer.tally import Tally
from benchmarks.peer.threaded import CONTENDERS

PLENTY = 50_000_000
"""Tokens/s, and burst, where all is to be allowed: more than anything here can ask for."""
_BEARABLE = 0.5
"""The part of what a contender can do at most that it is given where it cannot bear more."""
_CROWDED = 0.4
"""Seconds to warm up for tasks: a thousand of them make each round trip as long as all their calls."""


Where = Callable[[Bench], str]
"""Which of the bench's servers is asked, by its url."""
NEARBY: Where = attrgetter("url")
AWAY: Where = attrgetter("far")


def flat_out(
    threads: int,
    processes: int = 1,
    *,
    pin: bool = False,
    rate: int = PLENTY,
    seconds: float = 0.5,
    where: Where = NEARBY,
) -> Run:
    """Return a run of threads that call as fast as they can, at a limit of `rate` tokens/s and as large a burst."""

    def run(bench: Bench, who: str) -> Measures:
        terms = _terms(where(bench), rate, threads)
        first, *others = bench.run(Hammer(who, terms, seconds * bench.factor, pin), processes)
        tally = first.merge(others)
        return _audited(tally, terms, CONTENDERS[who].keys) | _asked(tally)

    return run


def crowd(tasks: int, where: Where = NEARBY) -> Run:
    """Return a run of tasks that call as fast as they can."""

    def run(bench: Bench, who: str) -> Measures:
        terms = _terms(where(bench), PLENTY, tasks)
        (tally,) = bench.run(Crowd(who, terms, 0.5 * bench.factor), warm_up=_CROWDED)
        return _audited(tally, terms)

    return run


def paced(threads: int, rate: int, demand: float, where: Where = NEARBY) -> Run:
    """Return a run of calls that fall due at `demand` times the limit of `rate` tokens/s."""

    def run(bench: Bench, who: str) -> Measures:
        terms = _terms(where(bench), rate, threads)
        (tally,) = bench.run(Pace(who, terms, 2.0 * bench.factor, demand * rate))
        if who == FLOOR and tally.counts:  # which asks nobody: this is what the server takes by itself
            bench.idle = tally.counts.processor / tally.seconds
        return _audited(tally, terms) | _asked(tally) | _counted(tally, bench.idle)

    return run


def timed(threads: int, rate: float, where: Where = NEARBY) -> Run:
    """Return a run of calls that are timed from when they are due; `rate` of them a second, or what can be borne."""

    def run(bench: Bench, who: str) -> Measures:
        url = where(bench)
        if (given := bench.given.get((who, url))) is None:
            (most,) = bench.run(Hammer(who, _terms(url, PLENTY, threads), 0.3 * bench.factor))
            given = bench.given[who, url] = min(rate, _BEARABLE * most.decisions / most.seconds)
        terms = _terms(url, PLENTY, threads)
        (waits,) = bench.run(Punctual(who, terms, bench.factor, given, 0.5 * bench.factor))
        return {"given": given, "excess": waits.tally.excess(terms)} | _percentiles(waits)

    return run


def _terms(url: str, rate: int, callers: int) -> Terms:
    return Terms(url, f"peers:{secrets.token_hex(4)}", rate, rate, callers)


def _audited(tally: Tally, terms: Terms, keys: int = 1) -> Measures:
    return {
        "decisions": float(tally.decisions),
        "rate": tally.decisions / tally.seconds,
        "admitted": tally.admitted / max(1, tally.decisions),
        "refused": (tally.decisions - tally.admitted) / tally.seconds,
        "excess": tally.excess(terms, keys),
        "used": tally.used(terms, keys),
    }


def _asked(tally: Tally) -> Measures:
    """What the server was asked, warming up included."""
    return {"requests/s": tally.counts.requests / tally.span} if tally.counts else {}


def _counted(tally: Tally, idle: float) -> Measures:
    """What a decision is to the server, where there was no warming up; its time without what it takes by itself."""
    if tally.counts is None:
        return {}
    requests, commands, processor = tally.counts
    decisions = max(1, tally.decisions)
    return {
        "requests/decision": requests / decisions,
        "commands/decision": commands / decisions,
        "processor": 1e6 * max(0.0, processor - idle * tally.seconds) / decisions,
    }


def _percentiles(waits: Waits) -> Measures:
    """Microseconds."""
    took, late = sorted(waits.took), sorted(waits.late)
    measures = {f"p{each:g}": 1e6 * percentile(took, each) for each in PERCENTILES}
    return measures | {f"late p{each:g}": 1e6 * percentile(late, each) for each in (50.0, 99.0, 99.9)}

"""Recorded runs of the originals, and the laws that have to replay them.

The files in golden/ hold what the classes of Netflix/concurrency-limits at commit 78a74b9 answered, state included, to
samples made up for the purpose.
"""

import gzip
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from batchlimit.concurrency.law import Law, Sample
from batchlimit.concurrency.laws import (
    AIMD,
    AverageWindow,
    Gradient,
    Gradient2,
    PercentileWindow,
    Periodic,
    Vegas,
    Window,
    Windowed,
    log10,
)

GOLDEN = Path(__file__).parent / "golden"

_ATTRIBUTES = {
    "limit": "limit",
    "state.estimatedLimit": "estimated_limit",
    "state.longRtt": "long_rtt_ns",
    "state.probeCount": "probe_count",
    "state.resetRttCounter": "probe_countdown",
    "state.rtt_noload": "rtt_noload_ns",
    "state.rttNoLoad": "rtt_noload_ns",
}


class Trace(NamedTuple):
    """One scenario of one file."""

    algorithm: str
    config: Mapping[str, Any]
    columns: tuple[str, ...]
    initial_limit: int
    rows: list[list[Any]]


def traces(path: Path) -> dict[str, Trace]:
    with gzip.open(path) as file:
        told = json.load(file)
    assert told["format"] == "batchlimit-golden/1"
    columns = tuple(told["columns"])
    return {
        name: Trace(told["algorithm"], told["config"], columns, scenario["initial_limit"], scenario["rows"])
        for name, scenario in told["scenarios"].items()
    }


def law_of(algorithm: str, config: Mapping[str, Any]) -> Law:
    """Build the law that a trace is about, from each of its parameters."""
    given = dict(config)
    given.pop("algorithm", None)
    for theirs, ours in (("min", "minimum"), ("max", "maximum"), ("rtt_tolerance", "tolerance")):
        if theirs in given:
            given[ours] = given.pop(theirs)
    if algorithm.startswith("WindowedLimit"):
        return Windowed(law_of(given["inner"]["algorithm"], given["inner"]), **_window(given["window"]))
    if algorithm == "AIMDLimit":
        return AIMD(timeout=given.pop("timeout_ns") / 1e9, **given)
    if "queue_size" in given:
        given["queue_size"] = _by_limit(given["queue_size"])
    if algorithm == "Gradient2Limit":
        return Gradient2(**given)
    given["jitter"] = _jitter(given.get("jitter"))
    if algorithm == "GradientLimit":
        if given.get("probe_interval") == -1:
            given["probe_interval"] = None
        return Gradient(**given)
    assert algorithm == "VegasLimit", algorithm
    for name in {"alpha", "beta", "threshold"} & given.keys():
        given[name] = _by_limit(given[name])
    for name in {"increase", "decrease"} & given.keys():
        given[name] = _change(given[name])
    return Vegas(**given)


def left_the_track(trace: Trace, law: Law) -> str | None:
    """Replay a trace; say at which row and in which column the law went another way, None if in none."""
    if law.limit != trace.initial_limit:
        return f"begins with {law.limit}, not {trace.initial_limit}"
    for number, row in enumerate(trace.rows):
        returned = law.update(Sample(row[0], row[1], row[2], bool(row[3])))
        if returned != law.limit:
            return f"row {number}: update returned {returned}, the limit is {law.limit}"
        for column, want in zip(trace.columns[4:], row[4:], strict=True):
            got = getattr(_inmost(law), _ATTRIBUTES[column])
            if got != want:
                return f"row {number} {row[:4]}: {column} is {got!r}, not {want!r}; before it {trace.rows[number - 1]}"
    return None


def _inmost(law: Law) -> Law:
    while isinstance(law, Windowed | Periodic):
        law = law.law
    return law


def _window(given: Mapping[str, Any]) -> dict[str, Any]:
    window: Window = AverageWindow()
    if given["kind"] == "percentile":
        part = given.get("percentile", given.get("p"))
        assert part is not None, given
        capacity = next(given[name] for name in ("capacity", "n", "percentile_window") if name in given)
        window = PercentileWindow(part, capacity)
    return {
        "window": window,
        "window_size": given["size"],
        "min_window": given["min_ns"] / 1e9,
        "max_window": given["max_ns"] / 1e9,
        "min_rtt": given["min_rtt_ns"] / 1e9,
    }


def _jitter(told: float | None) -> Callable[[], float]:
    return lambda: 0.75 if told is None else told


def _by_limit(told: int | str) -> Callable[[int], int]:
    """Read `4`, `"L"` and `"3*L"`, L being log10 of the limit, and a "sqrt", whose digits are its floor."""
    if isinstance(told, int):
        return lambda limit: told
    if "sqrt" in told:
        floor = int("".join(filter(str.isdigit, told)) or 1)
        return lambda limit: max(floor, math.isqrt(limit))
    times = int(told.removesuffix("L").removesuffix("*") or 1)
    return lambda limit: times * log10(limit)


def _change(told: str) -> Callable[[float], float]:
    """Read `"+L"`, `"-2*L"`, `"+1"`, `"/2"` and `"*0.5"`."""
    sign, amount = told[0], told[1:]
    if sign == "/":
        return lambda limit: limit / float(amount)
    if sign == "*":
        return lambda limit: limit * float(amount)
    by = _by_limit(amount if amount.endswith("L") else int(amount))
    return lambda limit: limit + by(int(limit)) if sign == "+" else limit - by(int(limit))


def golden() -> list[tuple[str, str]]:
    return [(path.name, name) for path in sorted(GOLDEN.glob("*.json.gz")) for name in traces(path)]

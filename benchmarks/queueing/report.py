"""The results as Markdown."""

import math
from collections.abc import Iterator, Sequence

from benchmarks.markdown import percent, table
from benchmarks.queueing.contestants import LAWS
from benchmarks.queueing.laws import OURS
from benchmarks.queueing.results import Results
from benchmarks.queueing.scenario import FALSE_REJECTIONS, GOODPUT, JUDGED, SCENARIOS
from benchmarks.queueing.seeds import Runs
from benchmarks.queueing.tally import Figures


def goodput_table(results: Results, letters: Sequence[str]) -> str:
    """Return the table of on-time goodput by law and scenario: the mean, and the worst seed."""
    letters = [letter for letter in letters if letter in results]
    return table(["on-time goodput: mean (worst)", *letters], _goodput_rows(results, letters)) if letters else ""


def _goodput_rows(results: Results, letters: Sequence[str]) -> Iterator[list[str]]:
    for who in results[letters[0]]:
        cells = (results[letter][who] for letter in letters)
        yield [who, *(f"{_share(runs.mean('goodput'))} ({_share(runs.worst('goodput'))})" for runs in cells)]


def details(results: Results) -> Iterator[str]:
    """A table for each scenario, all figures of each contestant."""
    head = ["", "goodput", "worst", "false rejections", "worst", "rejected", "late", "p50", "p99", "worst p99"]
    for letter, rows in results.items():
        figures = table(head, (_row(who, runs) for who, runs in rows.items()))
        yield f"### {letter}: {SCENARIOS[letter].title}\n\n{figures}"


def _row(who: str, runs: Runs[Figures]) -> list[str]:
    shares = [percent(runs.mean(name), 1) for name in ("rejected", "late")]
    spans = [_span(runs.mean("p50")), _span(runs.mean("p99")), _span(runs.worst("p99"))]
    false = [percent(runs.mean("false_rejections"), 2), percent(runs.worst("false_rejections"), 2)]
    return [who, _share(runs.mean("goodput")), _share(runs.worst("goodput")), *false, *shares, *spans]


def verdicts(results: Results) -> Iterator[list[str]]:
    """For each law: its least mean goodput of the judged scenarios, its false rejections in A, whether it passes."""
    letters = [letter for letter in JUDGED if letter in results]
    for who in (each for each in LAWS if letters and each in results[letters[0]]):
        least, where = min(
            ((results[letter][who].mean("goodput"), letter) for letter in letters), default=(math.nan, "")
        )
        false = results["A"][who].mean("false_rejections") if "A" in results else math.nan
        passed = least >= GOODPUT and false <= FALSE_REJECTIONS
        yield [who, f"{_share(least)} in {where}", percent(false, 2), "yes" if passed else "no"]


def losses(results: Results) -> Iterator[list[str]]:
    """Where another law reached more than ours, by at least 0.005 on average: that law, and what both reached."""
    for letter, rows in results.items():
        best = max((each for each in LAWS if each in rows), key=lambda who: rows[who].mean("goodput"))
        ours, theirs = rows[OURS], rows[best]
        if theirs.mean("goodput") - ours.mean("goodput") >= 0.005:
            spans = [f"{_share(each.mean('goodput'))}, {_span(each.mean('p99'))}" for each in (ours, theirs)]
            yield [f"{letter}: {SCENARIOS[letter].title}", *spans, best]


def _share(value: float) -> str:
    # Rounded down: .9399 has not reached .94.
    return "-" if math.isnan(value) else f"{math.floor(value * 1000) / 1000:.3f}"


def _span(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{1000 * seconds:,.0f} ms"

"""Choices tried, and drawn: what one gains across against what it loses up."""

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.queueing.fleet.choices import OURS, PLOTS, Axis, Plot
from benchmarks.queueing.fleet.drawing import style
from benchmarks.queueing.fleet.labels import Labels
from benchmarks.queueing.fleet.run import FleetRun
from benchmarks.queueing.fleet.tally import FleetFigures
from benchmarks.queueing.seeds import Runs, carried_out

_COLOURS = {
    "fixed limit": "#777777",
    "AIMD, by timeout": "#d55e00",
    "other laws": "#cc79a7",
    "Knee, by maximum": "#56b4e9",
    "Knee and a queue": "#009e73",
    OURS: "#0072b2",
}
_MS = (5, 10, 20, 50, 100, 200, 500)
Measured = Runs[FleetFigures]
"""All seeds of one choice in one panel."""


class Try(NamedTuple):
    """One run."""

    plot: int
    panel: int
    choice: int
    seed: int


def carry_out(task: Try) -> FleetFigures:
    """Run it, in whatever process."""
    plot = PLOTS[task.plot]
    choice, scenario = plot.choices[task.choice], plot.panels[task.panel]
    if choice.queue is not None:
        scenario = replace(scenario, queue=choice.queue)
    return FleetRun(scenario, lambda _: choice.law(), task.seed).figures()


def measure(pool: Executor, number: int, seeds: int) -> list[list[Measured]]:
    """Try all choices of a plot: by panel, then by choice."""
    panels, choices = range(len(PLOTS[number].panels)), range(len(PLOTS[number].choices))
    results = carried_out(pool, carry_out, partial(Try, number), panels, choices, range(seeds))
    return [[*each.values()] for each in results.values()]


def value(axis: Axis, runs: Measured) -> float:
    """Return the mean of a figure, in the unit of the axis."""
    return runs.mean(axis.figure) * (1000 if axis.in_ms else 1)


def draw(path: Path, plot: Plot, panels: Sequence[Sequence[Measured]]) -> None:
    """A panel for each scenario: a point for each choice."""
    rows = math.ceil(len(panels) / 2)
    with style():
        figure = Figure(figsize=(7.2, 3.2 * rows + 0.4), layout="constrained")
        all_axes = figure.subplots(rows, min(2, len(panels)), squeeze=False).flat
        drawn = []
        for axes, scenario, results in zip(all_axes, plot.panels, panels, strict=True):
            _panel(axes, plot, results)
            axes.set_title(scenario.name, fontsize=8)
            drawn.append((axes, results))
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, ncols=5, loc="outside lower center")
        figure.draw_without_rendering()  # where a label fits is known once the panels have their sizes
        for axes, results in drawn:
            _label(axes, plot, results)
        figure.savefig(path, metadata={"Date": None})


def _panel(axes: Axes, plot: Plot, results: Sequence[Measured]) -> None:
    for family in dict.fromkeys(choice.family for choice in plot.choices):
        shown = [runs for choice, runs in zip(plot.choices, results, strict=True) if choice.family == family]
        columns, heights = [value(plot.across, runs) for runs in shown], [value(plot.up, runs) for runs in shown]
        line = "none" if family == "other laws" else "-"
        size = 6 if family == OURS else 3.5
        axes.plot(
            columns, heights, "o", linestyle=line, linewidth=0.7, markersize=size, color=_COLOURS[family], label=family
        )
    if plot.across.in_ms:
        _log(axes, [value(plot.across, runs) for runs in results])
    else:
        axes.set_xlim(-0.05, 1.4)
        axes.set_xticks((0, 0.5, 1))
    axes.set_ylim(-0.04, 1.08)
    axes.set_xlabel(plot.across.title)
    axes.set_ylabel(plot.up.title)


def _label(axes: Axes, plot: Plot, results: Sequence[Measured]) -> None:
    points = {
        choice: (value(plot.across, runs), value(plot.up, runs))
        for choice, runs in zip(plot.choices, results, strict=True)
    }
    # A law that answered nobody has no fairness, and so no point.
    points = {choice: point for choice, point in points.items() if all(map(math.isfinite, point))}
    labels = Labels(axes, [*points.values()])
    for choice, point in points.items():
        labels.place(choice.label, point, _COLOURS[choice.family])


def _log(axes: Axes, spans: Sequence[float]) -> None:
    least, most = 0.7 * min(spans), 1.8 * max(spans)
    ticks = [each for each in _MS if least <= each <= most]
    axes.set_xscale("log")
    axes.set_xlim(least, most)
    axes.set_xticks(ticks, map(str, ticks))
    axes.minorticks_off()

"""How the limits of a fleet move, as drawings."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.queueing.fleet.contestants import CONTESTANTS
from benchmarks.queueing.fleet.run import FleetRun
from benchmarks.queueing.fleet.scenario import SCENARIOS
from benchmarks.queueing.laws import OURS

_LAWS = {
    "AIMD, 5 s": "#e69f00",
    "AIMD, 200 ms": "#d55e00",
    "Windowed Vegas": "#009e73",
    "Windowed Gradient2": "#cc79a7",
    OURS: "#0072b2",
}
_SECONDS = 300.0


@contextmanager
def style() -> Iterator[None]:
    # The same drawing gives the same file: no date in it, and names that do not change.
    with mpl.rc_context({"svg.hashsalt": "batchlimit", "svg.fonttype": "none", "font.size": 8}):
        yield


def _limits(name: str, law: str) -> tuple[list[float], list[Sequence[int]]]:
    """The limits at each fifth of a second: of each limiter."""
    times: list[float] = []
    limits: list[Sequence[int]] = []

    def watch(now: int, each: Sequence[int]) -> None:
        times.append(now / 1e9)
        limits.append(tuple(each))

    scenario = replace(SCENARIOS[name], seconds=_SECONDS)
    FleetRun(scenario, CONTESTANTS[law], 0, watch).figures()
    return times, limits


def draw_sums(path: Path, names: Sequence[str] = ("4 at 3x", "8 at 2x")) -> None:
    """A panel for each scenario: the sum of all limits under each law, and the workers there are."""
    with style():
        figure = Figure(figsize=(7.2, 2.3 * len(names)), layout="constrained")
        panels = figure.subplots(len(names), squeeze=False)[:, 0]
        for name, axes in zip(names, panels, strict=True):
            for law, colour in _LAWS.items():
                times, limits = _limits(name, law)
                width = 2.0 if law == OURS else 0.6
                axes.plot(times, [sum(each) for each in limits], label=law, color=colour, linewidth=width)
            axes.axhline(SCENARIOS[name].workers, color="#bbbbbb", linestyle="--")
            axes.set_yscale("log")
            axes.set_ylabel("sum of limits")
            axes.set_title(name, fontsize=8)
        figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, ncols=5, loc="outside lower center")
        panels[-1].set_xlabel("seconds")
        figure.savefig(path, metadata={"Date": None})


def draw_shares(path: Path, names: Sequence[str] = ("8 at 2x", "8 at 2x, clocks apart")) -> None:
    """A panel for each scenario: the limit of each limiter under the default law."""
    with style():
        figure = Figure(figsize=(7.2, 2.3 * len(names)), layout="constrained")
        panels = figure.subplots(len(names), squeeze=False)[:, 0]
        for name, axes in zip(names, panels, strict=True):
            times, limits = _limits(name, OURS)
            for place in range(len(limits[0])):
                axes.plot(times, [each[place] for each in limits], linewidth=0.8)
            axes.set_ylabel("limits")
            axes.set_title(name, fontsize=8)
        panels[-1].set_xlabel("seconds")
        figure.savefig(path, metadata={"Date": None})

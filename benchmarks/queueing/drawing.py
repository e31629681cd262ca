"""How limits move, and what they are worth, as drawings."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.queueing.contestants import CONTESTANTS
from benchmarks.queueing.laws import OURS
from benchmarks.queueing.results import Results
from benchmarks.queueing.run import Run
from benchmarks.queueing.scenario import SCENARIOS, Scenario

_COLOURS = ("#777777", "#e69f00", "#d55e00", "#cc79a7", "#009e73", "#56b4e9", "#b8860b", "#000000", "#8fbc8f")


@contextmanager
def _style() -> Iterator[None]:
    # The same drawing gives the same file: no date in it, and names that do not change.
    with mpl.rc_context({"svg.hashsalt": "batchlimit", "svg.fonttype": "none", "font.size": 8}):
        yield


def _colours(names: Sequence[str]) -> dict[str, str]:
    others = [name for name in names if name != OURS]
    return {OURS: "#0072b2"} | dict(zip(others, _COLOURS * 9, strict=False))


def draw_limits(path: Path, letters: Sequence[str], names: Sequence[str], seed: int) -> None:
    """A panel for each scenario: the limit of each law over time, and the workers there are."""
    colours = _colours(names)
    with _style():
        figure = Figure(figsize=(7.2, 2.1 * len(letters)), layout="constrained")
        panels = figure.subplots(len(letters), squeeze=False)[:, 0]
        for letter, axes in zip(letters, panels, strict=True):
            _draw_limit(axes, SCENARIOS[letter], colours, seed)
        figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, ncols=5, loc="outside lower center")
        panels[-1].set_xlabel("seconds")
        figure.savefig(path, metadata={"Date": None})


def _draw_limit(axes: Axes, scenario: Scenario, colours: Mapping[str, str], seed: int) -> None:
    for name, colour in colours.items():
        times, limits = _limits(scenario, name, seed)
        ours = name == OURS
        axes.plot(times, limits, label=name, color=colour, linewidth=2.0 if ours else 0.9, zorder=3 if ours else 2)
    starts = [phase.since for phase in scenario.phases] + [scenario.seconds]
    axes.stairs([phase.workers for phase in scenario.phases], starts, color="#bbbbbb", linestyle="--", baseline=None)
    axes.set_yscale("log")
    axes.set_ylim(1, 400)
    axes.set_yticks([1, 10, 100], ["1", "10", "100"])
    axes.set_ylabel("limit")
    axes.set_title(f"{scenario.letter}: {scenario.title}", fontsize=8)


def _limits(scenario: Scenario, name: str, seed: int) -> tuple[list[float], list[int]]:
    """The limit at the end of each fifth of a second in which a call ended."""
    seen: dict[int, int] = {}

    def watch(now: int, limit: int, in_flight: int, in_time: bool) -> None:
        seen[now // 200_000_000] = limit

    Run(scenario, CONTESTANTS[name](scenario), seed, watch).figures()
    return [fifth / 5 for fifth in seen], list(seen.values())


def draw_goodput(path: Path, results: Results, letters: Sequence[str], names: Sequence[str]) -> None:
    """A dot for each law in each scenario: the mean of all seeds; a line down to the worst."""
    colours = _colours(names)
    with _style():
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for place, (name, colour) in enumerate(colours.items()):
            columns = [x + 0.8 * (place + 0.5) / len(colours) - 0.4 for x in range(len(letters))]
            runs = [results[letter][name] for letter in letters]
            means = [each.mean("goodput") for each in runs]
            axes.vlines(columns, [each.worst("goodput") for each in runs], means, color=colour, linewidth=1)
            axes.plot(columns, means, "o", markersize=5 if name == OURS else 3, color=colour, label=name)
        axes.axhline(0.94, color="#bbbbbb", linewidth=0.8, zorder=0)
        axes.set_xticks(range(len(letters)), letters)
        axes.set_ylim(-0.03, 1.06)
        axes.set_ylabel("on-time goodput")
        axes.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.08), fontsize=7)
        figure.savefig(path, metadata={"Date": None})

"""Calls per decision against demand, as a drawing."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

_COLOURS = ("#777777", "#e69f00", "#d55e00", "#cc79a7", "#009e73")
"""For the rivals: distinguishable without seeing red and green."""


def draw(path: Path, demands: Sequence[float], lines: Mapping[str, Sequence[float]], ours: str) -> None:
    """Write the drawing of a line for each limiter; ours is the thick one."""
    # The same drawing gives the same file: no date in it, and names that do not change.
    with mpl.rc_context({"svg.hashsalt": "batchlimit", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(7.2, 4.4), layout="constrained")
        axes = figure.add_subplot(xscale="log", yscale="log")
        colours = iter(_COLOURS)
        for name, calls in lines.items():
            colour, width = ("#0072b2", 3.0) if name == ours else (next(colours), 1.3)
            axes.plot(demands, calls, marker="o", markersize=3, label=name, color=colour, linewidth=width)
        axes.axvline(1.0, color="#bbbbbb", linewidth=0.8, zorder=0)
        axes.set_xticks([0.25, 0.5, 1, 2, 6, 12, 25], [f"{each:g}x" for each in (0.25, 0.5, 1, 2, 6, 12, 25)])
        axes.set_yticks([0.1, 1, 10, 100], ["0.1 %", "1 %", "10 %", "100 %"])
        axes.minorticks_off()
        axes.set_xlabel("demand, in multiples of the rate")
        axes.set_ylabel("requests to the store per decision")
        axes.set_title("20 instances, 10,000/s burst 10,000, round trip 1 ms", fontsize=10)
        axes.grid(visible=True, color="#eeeeee")
        axes.legend(frameon=False, ncols=2, loc="center right", bbox_to_anchor=(1.0, 0.62))
        figure.savefig(path, metadata={"Date": None})

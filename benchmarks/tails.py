"""How many calls took longer than what, as a drawing."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

_COLOURS = ("#777777", "#0072b2", "#d55e00")


def draw(path: Path, took: Mapping[str, Iterable[int]]) -> None:
    """Write the drawing of a line for each kind of call, of its nanoseconds; the first is the one to compare with."""
    with mpl.rc_context({"svg.hashsalt": "batchlimit", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(7.2, 4.4), layout="constrained")
        axes = figure.add_subplot(xscale="log", yscale="log")
        for (name, all_of_them), colour in zip(took.items(), _COLOURS, strict=True):
            # In steps of 0.02 us, or the file would have a point for each call.
            steps = [each // 20 / 50 for each in all_of_them]
            axes.ecdf(steps, complementary=True, compress=True, label=name, color=colour)
        axes.set_yticks([1, 0.1, 0.01, 0.001, 0.0001], ["all", "10 %", "1 %", "0.1 %", "0.01 %"])
        axes.set_xlabel("microseconds")
        axes.set_ylabel("calls that take longer")
        axes.grid(visible=True, color="#eeeeee")
        axes.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})

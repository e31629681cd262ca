"""What small limits admit of what a plain bucket admits, as a drawing."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.small_limits.cells import BURSTS, INSTANCES, LEAST, RATES, Found

_COLOURS = ("#777777", "#e69f00", "#009e73", "#0072b2", "#d55e00")


def draw(path: Path, found: Sequence[Found]) -> None:
    """Write a panel for each rate: the least part of each burst and number of instances, whatever the demand."""
    # The same drawing gives the same file: no date in it, and names that do not change.
    with mpl.rc_context({"svg.hashsalt": "batchlimit", "svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(7.2, 2.6), layout="constrained")
        for rate, axes in zip(RATES, figure.subplots(1, len(RATES), sharey=True), strict=True):
            for instances, colour in zip(INSTANCES, _COLOURS, strict=True):
                parts = [_least(found, rate, burst, instances) for burst in BURSTS]
                axes.plot(range(len(BURSTS)), parts, "o-", markersize=3, label=f"{instances}", color=colour)
            axes.axhline(LEAST, color="#bbbbbb", linewidth=0.8, zorder=0)
            axes.set_xticks(range(len(BURSTS)), [str(burst) for burst in BURSTS])
            axes.set_ylim(0.9, 1.02)
            axes.set_title(rate, fontsize=8)
            axes.set_xlabel("burst")
        figure.axes[0].set_ylabel("of a plain bucket, the least")
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, title="instances", frameon=False, ncols=5, loc="outside lower center")
        figure.savefig(path, metadata={"Date": None})


def _least(found: Sequence[Found], rate: str, burst: int, instances: int) -> float:
    return min(
        one.part for one in found if (one.cell.rate, one.cell.burst, one.cell.instances) == (rate, burst, instances)
    )

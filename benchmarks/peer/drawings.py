"""The results as drawings: decisions by threads, the time a call takes, and what it costs the server."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.peer.book import Book
from benchmarks.peer.contender import BATCHED, BOUND, FLOOR, OURS
from benchmarks.peer.parts import COST

_STYLES: dict[str, tuple[str, str, float]] = {
    FLOOR: ("#bbbbbb", ":", 1.3),
    OURS: ("#0072b2", "-", 3.0),
    BOUND: ("#56b4e9", "-", 3.0),
    BATCHED: ("#0072b2", "--", 2.0),
    "limits, fixed window": ("#d55e00", "-", 1.3),
    "limits, sliding counter": ("#d55e00", "--", 1.3),
    "throttled-py, GCRA": ("#e69f00", "-", 1.3),
    "pyrate-limiter, token bucket": ("#cc79a7", "-", 1.3),
    "redis-rate-limiters": ("#009e73", "-", 1.3),
    "bare INCR": ("#777777", "-", 1.3),
}
"""Colour, dashes and width: distinguishable without seeing red and green."""
_SHOWN = (50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99)


def draw(book: Book, folder: Path) -> None:
    """Write those drawings for which there is something."""
    for part, name, drawing in (
        ("speed", "speed", _speed),
        ("latency", "latency", _latency),
        ("cost", "processor", _processor),
    ):
        if book.settings(part):
            with _figure() as figure:
                drawing(book, figure)
                figure.savefig(folder / f"peers-{name}.svg", metadata={"Date": None})


@contextmanager
def _figure() -> Iterator[Figure]:
    # The same drawing gives the same file: no date in it, and names that do not change.
    with mpl.rc_context({"svg.hashsalt": "batchlimit", "svg.fonttype": "none", "font.size": 9}):
        yield Figure(figsize=(7.2, 4.4), layout="constrained")


def _speed(book: Book, figure: Figure) -> None:
    settings = book.settings("speed")
    axes = figure.add_subplot(yscale="log")
    for who in book.names("speed"):
        _line(axes, who, range(len(settings)), [book.median("speed", each, who, "rate") for each in settings])
    axes.set_xticks(range(len(settings)), settings)
    axes.set_ylabel("decisions/s")
    axes.set_title("Decisions by threads: all of them allowed", fontsize=10)
    axes.grid(visible=True, color="#eeeeee")
    figure.legend(*axes.get_legend_handles_labels(), frameon=False, loc="outside right center")


def _latency(book: Book, figure: Figure) -> None:
    settings = book.settings("latency")
    for number, setting in enumerate(settings):
        axes = figure.add_subplot(1, len(settings), number + 1, xscale="log", yscale="log")
        for who in book.names("latency"):
            times = [book.median("latency", setting, who, f"p{each:g}") for each in _SHOWN]
            _line(axes, who, [1 / (1 - each / 100) for each in _SHOWN], times)
        axes.set_xticks([2, 10, 100, 1000, 10000], ["p50", "p90", "p99", "p99.9", "p99.99"], rotation=30)
        axes.minorticks_off()
        axes.set_ylim(0.3, 3e6)
        axes.set_title(f"the server {setting}", fontsize=10)
        axes.grid(visible=True, color="#eeeeee")
    figure.axes[0].set_ylabel("us from when a call was due")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), frameon=False, ncols=3, loc="outside lower center")


def _processor(book: Book, figure: Figure) -> None:
    names = [who for who in book.names("cost") if who != FLOOR]
    times = [book.median("cost", COST, who, "processor") for who in names]
    axes = figure.add_subplot()
    bars = axes.barh(names, times, color=[_STYLES[who][0] for who in names])
    axes.bar_label(bars, [f"{each:.2g}" for each in times], padding=3)
    axes.invert_yaxis()
    axes.set_xlabel("us of the server's processor for each decision")
    axes.set_title(f"What a decision costs the server, {COST}", fontsize=10)
    axes.margins(x=0.15)


def _line(axes: Axes, who: str, at: Sequence[float], values: Sequence[float]) -> None:
    colour, dashes, width = _STYLES[who]
    axes.plot(at, values, label=who, color=colour, linestyle=dashes, linewidth=width, marker="o", markersize=3)

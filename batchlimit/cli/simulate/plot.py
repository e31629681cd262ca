"""Draws admitted and refused requests over time."""

from datetime import UTC, datetime
from typing import Any

from batchlimit.cli.simulate.result import Result

_BINS = 200


def binned(result: Result) -> tuple[float, list[tuple[float, float, float]]]:
    """Return the seconds of a bin, and of each bin when it begins and how many were admitted and refused a second."""
    first, last = min(result.seconds), max(result.seconds)
    width = max(1, -(-(last - first + 1) // _BINS))
    bins = [[0, 0] for _ in range((last - first) // width + 1)]
    for second, (admitted, refused) in result.seconds.items():
        place = bins[(second - first) // width]
        place[0] += admitted
        place[1] += refused
    return width, [(first + at * width, one / width, two / width) for at, (one, two) in enumerate(bins)]


def draw(result: Result, path: str) -> None:
    """Write a picture, whose form the name's ending tells; raises ValueError without matplotlib, or of no requests."""
    try:
        import matplotlib as mpl

        mpl.use("agg")
        from matplotlib import pyplot as plt
    except ModuleNotFoundError as error:
        raise ValueError("a plot needs matplotlib: pip install 'batchlimit[plot]', or leave --plot out") from error
    if not result.seconds:
        raise ValueError("there is nothing to plot: no line of the log is a request")
    width, bins = binned(result)
    times: list[Any] = [datetime.fromtimestamp(at, UTC) for at, _, _ in bins]
    figure, axes = plt.subplots(figsize=(9, 4))
    series = [admitted for _, admitted, _ in bins], [refused for _, _, refused in bins]
    axes.stackplot(times, *series, labels=["admitted", "refused"], colors=["#4c9f70", "#d1495b"], step="post")
    axes.set_ylabel(f"requests per second, over {width} s")
    axes.legend(loc="upper left")
    axes.set_ylim(bottom=0)
    figure.autofmt_xdate()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)

"""Draws what the panels of the dashboard show: a minute of a fleet under load, scraped by a Prometheus.

    python -m benchmarks.dashboard [--seconds 60] [--out docs/how-to/dashboard.svg]

It needs `prometheus` in the PATH. Two processes on a Valkey, and the exporter. First all is well. Then more logins come
than are allowed, requests of no rule, and slow work behind the concurrency limiter. In the end the store is away, and
comes back.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from tests.chaos.alerts.service import FLOOD, SLOW, STRANGERS
from tests.chaos.alerts.town import town

ROOT = Path(__file__).parents[1]
PANELS = json.loads((ROOT / "deploy" / "grafana" / "batchlimit.json").read_text(encoding="utf-8"))["panels"]
_COLUMNS = 3
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#777777")


def measured(seconds: float) -> dict[str, list[Any]]:
    """Watch a fleet for so long; return the series of each panel by its title."""
    with town() as fleet:
        time.sleep(5.0)  # what begins is in no picture
        began = time.time()
        time.sleep(0.25 * seconds)
        fleet.go_wrong(FLOOD, STRANGERS, SLOW)
        with fleet.admin() as admin:
            admin.set("search:*", "400/s", until="1h", why="a picture")
        time.sleep(0.25 * seconds)
        fleet.go_wrong()
        fleet.relay.refuse()
        time.sleep(0.2 * seconds)
        fleet.relay.restore()
        time.sleep(0.3 * seconds)
        return {
            panel["title"]: fleet.prometheus.history(_plain(panel["targets"][0]["expr"]), began, began + seconds)
            for panel in PANELS
        }


def _plain(expression: str) -> str:
    return expression.replace("$limiter", ".*").replace("$__rate_interval", "5s")


def _with_gaps(values: list[Any], first: float) -> Iterator[tuple[float, float]]:
    """Yield times and values; nothing is drawn across seconds without a value."""
    before = math.inf
    for at, value in values:
        if at > before + 1.5:
            yield at - first, math.nan
        yield at - first, float(value)
        before = at


def _highest(series: Any) -> float:
    return max(float(value) for _, value in series["values"])


def draw(path: Path, series: dict[str, list[Any]]) -> None:
    """Write the drawing: a small one for each panel."""
    rows = -(-len(series) // _COLUMNS)
    with mpl.rc_context({"svg.hashsalt": "batchlimit", "svg.fonttype": "none", "font.size": 7}):
        figure = Figure(figsize=(10, 1.75 * rows), layout="constrained")
        for number, (title, found) in enumerate(series.items(), start=1):
            axes = figure.add_subplot(rows, _COLUMNS, number)
            found.sort(key=_highest, reverse=True)  # there are colours for so many
            first = min((float(each["values"][0][0]) for each in found), default=0.0)
            for colour, each in zip(_COLOURS, found, strict=False):
                at, values = zip(*_with_gaps(each["values"], first), strict=True)
                axes.plot(at, values, color=colour, linewidth=1, label=" ".join(filter(None, each["metric"].values())))
            axes.set_title(title, fontsize=8)
            axes.set_ylim(0, 1.4 * max(axes.get_ylim()[1], 1e-9))
            axes.grid(visible=True, color="#eeeeee")
            if any(each["metric"] for each in found):
                axes.legend(frameon=False, fontsize=5.5, ncols=2, loc="upper left")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, action="append", default=[])
    chosen = parser.parse_args()
    series = measured(chosen.seconds)
    for path in chosen.out or [ROOT / "docs" / "how-to" / "dashboard.svg"]:
        draw(path, series)
    empty = [title for title, found in series.items() if not found]
    print(f"{len(series)} panels; without data: {', '.join(empty) or 'none'}")


if __name__ == "__main__":
    main()

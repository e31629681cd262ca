"""Trade-offs are drawn from runs of each choice at each server."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the plots are of the group bench")

from benchmarks import tradeoffs
from benchmarks.queueing.fleet import tradeoff
from benchmarks.queueing.fleet.choices import PLOTS
from benchmarks.queueing.fleet.tally import FleetFigures


def figures(goodput: float, p50: float) -> FleetFigures:
    return FleetFigures(goodput, 1.0, 0.0, 1.0, 1.0, 1.0, p50, 0.0)


def test_each_plot_has_a_row_for_each_choice_and_is_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tradeoff, "carry_out", lambda task: figures(0.9, 0.02))
    monkeypatch.setattr(tradeoffs, "ProcessPoolExecutor", lambda jobs, mp_context: ThreadPoolExecutor(jobs))
    monkeypatch.setattr(tradeoffs, "_DOCS", tmp_path)
    monkeypatch.setattr("sys.argv", ["tradeoffs", "--seeds", "2", "--write"])
    tradeoffs.main()
    told = capsys.readouterr().out
    for plot in PLOTS:
        rows = [
            line for line in told.splitlines() if line.startswith(tuple(f"| {each.name} |" for each in plot.panels))
        ]
        assert len(rows) == len(plot.panels) * len(plot.choices)
        assert "<svg" in (tmp_path / f"{plot.name}.svg").read_text(encoding="utf-8")

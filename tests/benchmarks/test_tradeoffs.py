"""Trade-offs are drawn from runs of each choice at each server."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the plots are of the group bench")

from batchlimit.concurrency.queue import Queue
from benchmarks import tradeoffs
from benchmarks.queueing.fleet import tradeoff
from benchmarks.queueing.fleet.choices import PLOTS
from benchmarks.queueing.fleet.tally import FleetFigures
from benchmarks.queueing.seeds import Runs


def figures(goodput: float, p50: float) -> FleetFigures:
    return FleetFigures(goodput, 1.0, 0.0, 1.0, 1.0, 1.0, p50, 0.0)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """All plots, but of 25 s."""
    plots = [replace(each, panels=tuple(replace(panel, seconds=25.0) for panel in each.panels)) for each in PLOTS]
    monkeypatch.setattr(tradeoff, "PLOTS", plots)


def test_an_axis_is_the_mean_of_a_figure_in_its_unit() -> None:
    runs = Runs((figures(0.5, 0.010), figures(1.0, 0.030)))
    tail = next(each for each in PLOTS if each.name == "tradeoff-tail")
    assert tradeoff.value(tail.up, runs) == 0.75
    assert tradeoff.value(tail.across, runs) == pytest.approx(20.0)


@pytest.mark.usefixtures("short")
def test_a_choice_brings_its_own_queue() -> None:
    number = next(n for n, each in enumerate(PLOTS) if each.name == "tradeoff-bursts")
    labels = {choice.label: place for place, choice in enumerate(PLOTS[number].choices)}
    assert PLOTS[number].choices[labels["500 ms"]].queue == Queue(1000, max_wait=0.5)
    without, with_queue = (
        tradeoff.carry_out(tradeoff.Try(number, 0, labels[label], 0)) for label in ("Knee()", "500 ms")
    )
    assert with_queue.false_refusals < 0.1 < 0.3 < without.false_refusals


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

"""Labels of points that lie close together can all be read."""

from itertools import combinations

import pytest

pytest.importorskip("matplotlib", reason="the plots are of the group bench")

from matplotlib.figure import Figure

from benchmarks.queueing.fleet.labels import Labels

POINTS = [(1.0, 1.0), (1.0, 1.0), (1.0, 0.99), (0.99, 1.0), (0.0, 0.0), (0.0, 0.0)]


def test_no_label_covers_another_or_a_point_and_all_stand_in_the_panel() -> None:
    figure = Figure(figsize=(4, 4))
    axes = figure.add_subplot()
    axes.set(xlim=(-0.05, 1.4), ylim=(-0.04, 1.08))
    figure.draw_without_rendering()
    labels = Labels(axes, POINTS)
    boxes = [labels.place(f"label {number}", point, "black") for number, point in enumerate(POINTS)]
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    assert not [point for point in POINTS for box in boxes if box.contains(*axes.transData.transform(point))]
    corners = [corner for box in boxes for corner in box.get_points()]
    assert all(axes.bbox.contains(*corner) for corner in corners)

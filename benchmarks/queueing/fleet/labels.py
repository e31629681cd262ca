"""Labels of points that lie close together: each stands where nothing else does, and a thin line leads to its point."""

import math
from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

Point = tuple[float, float]

_SIZE = 6.0
"""Of the letters, in points."""
_NEAR, _STEP, _FARTHEST = 7.0, 6.0, 90.0
"""How far from its point a label may stand, in points of print."""
_DIRECTIONS = 16
_DOT = 6.0


class Labels:
    """The labels of one panel; the first one placed has the first choice.

    Args:
        axes: A panel whose size is settled.
        points: All points of it, in its own units: no label covers one.
    """

    def __init__(self, axes: Axes, points: Sequence[Point]) -> None:
        self._axes = axes
        self._scale = axes.get_figure(root=True).dpi / 72  # type: ignore[union-attr]
        size = _DOT * self._scale
        self._taken = [self._around(x, y, size, size) for x, y in map(axes.transData.transform, points)]

    def place(self, text: str, point: Point, colour: str) -> Bbox:
        """Write a label as near to its point as there is room; return where it stands, in pixels."""
        x, y = self._axes.transData.transform(point)
        width, height = self._size(text)
        boxes = {(dx, dy): self._around(x + dx * self._scale, y + dy * self._scale, width, height)
                 for dx, dy in _offsets()}  # fmt: skip
        offset = next((offset for offset, box in boxes.items() if self._is_free(box)), next(iter(boxes)))
        self._write(text, point, offset, colour)
        self._taken.append(boxes[offset])
        return boxes[offset]

    def _size(self, text: str) -> tuple[float, float]:
        tried = self._axes.text(0, 0, text, fontsize=_SIZE)
        box = tried.get_window_extent()
        tried.remove()
        return box.width, box.height

    def _write(self, text: str, point: Point, offset: Point, colour: str) -> None:
        line = {"arrowstyle": "-", "linewidth": 0.4, "color": colour, "shrinkA": 0, "shrinkB": 1}
        self._axes.annotate(
            text, point, offset, textcoords="offset points", ha="center", va="center", fontsize=_SIZE, color=colour,
            arrowprops=line,
        )  # fmt: skip

    @staticmethod
    def _around(x: float, y: float, width: float, height: float) -> Bbox:
        return Bbox.from_bounds(x - width / 2, y - height / 2, width, height)

    def _is_free(self, box: Bbox) -> bool:
        panel = self._axes.bbox
        inside = panel.x0 < box.x0 and box.x1 < panel.x1 and panel.y0 < box.y0 and box.y1 < panel.y1
        return inside and not any(box.overlaps(each) for each in self._taken)


def _offsets() -> Iterator[Point]:
    """Places around a point, the nearest first; those at its right and its left come before those above and below."""
    for ring in range(int((_FARTHEST - _NEAR) / _STEP)):
        radius = _NEAR + ring * _STEP
        for turn in range(_DIRECTIONS):
            angle = 2 * math.pi * turn / _DIRECTIONS
            yield 2 * radius * math.cos(angle), radius * math.sin(angle)

"""Figures as Markdown."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, a line each for its head, the rule and the rows."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def percent(share: float, digits: int = 2) -> str:
    """Return a part of 1 in percent; a dash where there is none."""
    return "-" if math.isnan(share) else f"{100 * share:.{digits}f} %"


def between_marks(path: Path, name: str, text: str) -> None:
    """Replace what stands between the marks `<!-- name -->` and `<!-- /name -->` of a file; ValueError without them."""
    opening, closing = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, found, rest = path.read_text(encoding="utf-8").partition(opening)
    _, ended, after = rest.partition(closing)
    if not found or not ended:
        raise ValueError(f"{path} lacks the marks {opening.strip()} and {closing}")
    path.write_text(f"{before}{opening}{text}{closing}{after}", encoding="utf-8")

"""What a benchmark prints: one figure a line, with its target and whether it was met."""

import json
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from os import cpu_count


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. `at_least` and `at_most` are its target; a figure without one only informs."""

    name: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """`ok` or `short` of the target, or nothing where there is none."""
        if self.at_least is None and self.at_most is None:
            return ""
        met = (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )
        return "ok" if met else "short"

    @property
    def target(self) -> str:
        """What it is to reach, or nothing where it only informs."""
        least = "" if self.at_least is None else f">= {_shown(self.at_least, self.unit)}"
        return least if self.at_most is None else f"<= {_shown(self.at_most, self.unit)}"

    def __str__(self) -> str:
        line = f"{self.name:<62} {_shown(self.value, self.unit):>14}  {self.target:<12} {self.verdict:<5} {self.note}"
        return line.rstrip()


def ran_on() -> str:
    """The machine and the versions that the figures belong to."""
    return (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {cpu_count()} cores, "
        f"redis-py {version('redis')}"
    )


def as_json(figures: Iterable[Figure]) -> str:
    """One document for all figures, each with its verdict."""
    rows = [asdict(figure) | {"verdict": figure.verdict} for figure in figures]
    return json.dumps({"machine": ran_on(), "figures": rows}, indent=2)


def report(figures: Iterable[Figure], *, as_document: bool, ran: str = "") -> list[Figure]:
    """Print each figure as soon as it is there, below what it `ran` on; or one document at the end. Return them all."""
    if as_document:
        found = list(figures)
        print(as_json(found))
        return found
    print(ran or ran_on(), flush=True)
    return [_printed(figure) for figure in figures]


def _printed(figure: Figure) -> Figure:
    print(figure, flush=True)
    return figure


def _shown(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value:.2f} %"
    digits = 0 if float(value).is_integer() else 3
    return f"{value:,.{digits}f} {unit}".rstrip()

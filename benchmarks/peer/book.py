"""The results: every round of every contender in every setting, and their medians."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

Measures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Round:
    """One contender, once."""

    part: str
    setting: str
    who: str
    number: int
    measures: Measures


@dataclass(slots=True)
class Book:
    """All rounds, in the order in which they were run; figures are medians over them, ratios of the same round."""

    rounds: list[Round] = field(default_factory=list)

    def settings(self, part: str) -> list[str]:
        return _once(each.setting for each in self.rounds if each.part == part)

    def names(self, part: str, setting: str | None = None) -> list[str]:
        return _once(each.who for each in self.rounds if each.part == part and setting in (None, each.setting))

    def median(self, part: str, setting: str, who: str, measure: str) -> float:
        """Of all rounds; NaN where nothing was measured."""
        found = [value for value in self._series(part, setting, who, measure).values() if not math.isnan(value)]
        return statistics.median(found) if found else math.nan

    def worst(self, part: str, setting: str, who: str, measure: str) -> float:
        """The largest of all rounds; NaN where nothing was measured."""
        return max(self._series(part, setting, who, measure).values(), default=math.nan)

    def least(self, part: str, setting: str, who: str, measure: str) -> float:
        """The smallest of all rounds; NaN where nothing was measured."""
        return min(self._series(part, setting, who, measure).values(), default=math.nan)

    def ratio(self, part: str, setting: str, who: str, other: str, measure: str) -> float:
        """The median of what each round says of the two, which ran in the same seconds; NaN without such rounds."""
        mine, theirs = (self._series(part, setting, each, measure) for each in (who, other))
        ratios = [mine[number] / theirs[number] for number in mine if theirs.get(number)]
        return statistics.median(ratios) if ratios else math.nan

    def best(self, part: str, setting: str, among: Iterable[str], measure: str, *, least: bool = False) -> str | None:
        """Return the name with the largest median, or the least; None if none of them was measured."""
        found = {who: self.median(part, setting, who, measure) for who in among}
        known = sorted((value, who) for who, value in found.items() if not math.isnan(value))
        return known[0 if least else -1][1] if known else None

    def rows(self) -> list[dict[str, Any]]:
        """Every round, as JSON has it: what is not a number is null there."""
        return [
            asdict(each)
            | {"measures": {name: None if math.isnan(value) else value for name, value in each.measures.items()}}
            for each in self.rounds
        ]

    def _series(self, part: str, setting: str, who: str, measure: str) -> dict[int, float]:
        wanted = part, setting, who
        return {
            each.number: each.measures[measure]
            for each in self.rounds
            if (each.part, each.setting, each.who) == wanted and measure in each.measures
        }


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))

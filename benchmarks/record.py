"""What a ratio was when last it was recorded, and whether it has become worse since."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

TOLERANCE = 0.3
"""A ratio may be so much larger than the recorded one. Runs on a busy machine differ by a tenth, rarely a sixth."""
_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Row:
    """One ratio now, and as recorded; None: it was not measured, or not recorded."""

    name: str
    now: float | None
    then: float | None
    tolerance: float = TOLERANCE

    @property
    def verdict(self) -> str:
        """`ok`, `worse` or `better`, `gone` where it is measured no longer, or `new`, which is not judged."""
        if self.now is None or self.then is None:
            return "gone" if self.now is None else "new"
        if self.now > self.then * (1.0 + self.tolerance):
            return "worse"
        # What has become so much better could become as bad again unseen: it is to be recorded anew.
        return "ok" if self.now * (1.0 + self.tolerance) >= self.then else "better"

    @property
    def fails(self) -> bool:
        """Whether a run with such a row is to fail."""
        return self.verdict in ("worse", "gone", "better")

    def __str__(self) -> str:
        change = "" if self.now is None or self.then is None else f"{self.now / self.then - 1.0:+.0%}"
        return f"{self.name:<56} {_shown(self.now):>8} {_shown(self.then):>9} {change:>6}  {self.verdict}"


def compare(
    now: Mapping[str, float], then: Mapping[str, float], tolerances: Mapping[str, float] = MappingProxyType({})
) -> Iterator[Row]:
    """Yield a row for each ratio that is in either; some may have a tolerance of their own."""
    for name in [*now, *(name for name in then if name not in now)]:
        yield Row(name, now.get(name), then.get(name), tolerances.get(name, TOLERANCE))


def quickest(times: Sequence[float]) -> float:
    """Return what one round in twenty stays within: whatever disturbs a round makes it longer, so this is least so."""
    return sorted(times)[int(len(times) * _SHARE)]


def ratios(rounds: Sequence[Mapping[str, float]], floor: str) -> dict[str, float]:
    """Return what each takes over what the floor takes, by `name / floor`."""
    least = quickest([each[floor] for each in rounds])
    return {
        f"{name} / {floor}": quickest([each[name] for each in rounds]) / least for name in rounds[0] if name != floor
    }


def read(path: Path) -> dict[str, float]:
    """Return the recorded ratios; none where there is no record."""
    if not path.exists():
        return {}
    return {name: float(ratio) for name, ratio in json.loads(path.read_text(encoding="utf-8"))["ratios"].items()}


def write(path: Path, now: Mapping[str, float], machine: str) -> None:
    """Record these ratios, and where they were measured."""
    path.parent.mkdir(exist_ok=True)
    document = {"machine": machine, "ratios": {name: round(ratio, 3) for name, ratio in sorted(now.items())}}
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _shown(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"

"""What laws hold for the time that calls take without a queue, whatever the law."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class Baselined(Protocol):
    """A law that compares how long calls take with a baseline that it learnt."""

    @property
    def baselines(self) -> Mapping[str, float]:
        """By operation, in seconds; "" where the law does not tell them apart. Empty as long as none is known."""
        ...


def baselines_of(law: object) -> dict[str, float]:
    """Return the baselines of a law, or of the law that it wraps; empty if it has none."""
    while not isinstance(law, Baselined):
        if (law := getattr(law, "law", None)) is None:
            return {}
    return dict(law.baselines)


def single(ns: float) -> dict[str, float]:
    """Return the one baseline of a law that does not tell operations apart; 0: none is known yet."""
    return {"": ns / 1e9} if ns else {}

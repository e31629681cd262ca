"""Where contenders are run, and in what order: in turn, in every setting, round by round."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peer.book import Book, Measures, Round
from benchmarks.peer.contender import FLOOR, Contender
from benchmarks.peer.crew import Crew, Job, Outcome


@dataclass(slots=True)
class Bench:
    """Client processes, a server, the same server 1 ms away, and what was found so far."""

    crew: Crew
    url: str
    far: str
    factor: float = 1.0
    """Times the seconds that are counted, and those to warm up."""
    book: Book = field(default_factory=Book)
    given: dict[tuple[str, str], float] = field(default_factory=dict)
    """Calls/s that a contender can bear, by its name and the server's url."""
    idle: float = 0.0
    """Seconds of processor time that the server takes in a second without calls."""

    def run(self, job: Job[Outcome], processes: int = 1, warm_up: float = 0.15) -> list[Outcome]:
        """Have it done; what adapts has so many seconds to do so before it counts."""
        return self.crew.run(job, processes, warm_up * self.factor)


Run = Callable[[Bench, str], Measures]
"""Runs one contender, by its name, once."""


@dataclass(frozen=True, slots=True)
class Part:
    """Contenders by name, what to run with each in every setting, and how many times."""

    name: str
    contenders: Sequence[Contender[Any]]
    settings: Mapping[str, Run]
    rounds: int

    @property
    def names(self) -> list[str]:
        """The contenders whose packages are installed."""
        return [each.name for each in self.contenders if each.version]

    @property
    def runs(self) -> int:
        """How many runs a round has."""
        return len(self.settings) * len(self.names)

    def carry_out(self, bench: Bench, rounds: int, tell: Callable[[str], None]) -> None:
        """Run it all, and write it down; tell before each run what is next. Each round begins with another one."""
        for number in range(rounds):
            first = number % len(self.names)
            for setting, run in self.settings.items():
                # The empty call is first: what it takes of the server is what the others are spared.
                for who in sorted(self.names[first:] + self.names[:first], key=lambda name: name != FLOOR):
                    tell(f"{self.name}, {setting}: {who}")
                    bench.book.rounds.append(Round(self.name, setting, who, number, run(bench, who)))

"""What a rival is: decisions and rounds as generators, which yield what they must ask the shared bucket."""

from collections.abc import Generator
from typing import Generic, NamedTuple, Protocol, TypeVar

Verdict = TypeVar("Verdict")


class Take(NamedTuple):
    """Ask for up to `tokens`; `whole`: for all of them or nothing. Answered with the tokens granted."""

    tokens: int
    whole: bool


class Tell(NamedTuple):
    """Report that `spent` tokens were spent. Answered with the level left in the bucket, which may be below 0."""

    spent: int


Errand = Take | Tell


class Rival(Protocol):
    """One host's part of another way to limit. Pure: `now` (s) comes in, an errand goes out, its answer comes in.

    Steps of one host never overlap; between an errand and its answer any number of others may begin.
    """

    @property
    def period(self) -> float | None:
        """Seconds between background rounds; None: there are none."""
        ...

    @property
    def single(self) -> bool:
        """Whether a host sends one errand at a time: who would send another waits for the answer, then begins anew."""
        ...

    def admit(self, cost: int, now: float) -> Generator[Errand, int, bool]:
        """Make one decision. Nothing has changed yet when it yields its first errand, so it can be begun anew."""
        ...

    def background(self, now: float) -> Generator[Errand, int, None]:
        """Do what is due every `period`."""
        ...


class Course(Generic[Verdict]):
    """A generator on its way: `errand` is what it waits for; once that is None, `verdict` is what it came to."""

    __slots__ = ("_steps", "errand", "verdict")

    verdict: Verdict

    def __init__(self, steps: Generator[Errand, int, Verdict]) -> None:
        self._steps = steps
        self.errand: Errand | None = None
        self._go(None)

    def answer(self, reply: int) -> None:
        """Go on with the bucket's answer to the errand."""
        self._go(reply)

    def _go(self, reply: int | None) -> None:
        try:
            self.errand = next(self._steps) if reply is None else self._steps.send(reply)
        except StopIteration as end:
            self.errand, self.verdict = None, end.value

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


Request = Take | Tell


class Rival(Protocol):
    """One instance's part of another way to limit. Pure: `now` (s) comes in, a request goes out, its answer comes in.

    Steps of one instance never overlap; between a request and its answer any number of others may begin.
    """

    @property
    def period(self) -> float | None:
        """Seconds between background rounds; None: there are none."""
        ...

    @property
    def single(self) -> bool:
        """Whether an instance sends one request at a time: another caller waits for the answer, then begins anew."""
        ...

    def admit(self, cost: int, now: float) -> Generator[Request, int, bool]:
        """Make one decision. Nothing has changed yet when it yields its first request, so it can be begun anew."""
        ...

    def background(self, now: float) -> Generator[Request, int, None]:
        """Do what is due every `period`."""
        ...


class Course(Generic[Verdict]):
    """A generator on its way: `request` is what it waits for; once that is None, `verdict` is what it came to."""

    __slots__ = ("_steps", "request", "verdict")

    verdict: Verdict

    def __init__(self, steps: Generator[Request, int, Verdict]) -> None:
        self._steps = steps
        self.request: Request | None = None
        self._go(None)

    def answer(self, reply: int) -> None:
        """Go on with the bucket's answer to the request."""
        self._go(reply)

    def _go(self, reply: int | None) -> None:
        try:
            self.request = next(self._steps) if reply is None else self._steps.send(reply)
        except StopIteration as end:
            self.request, self.verdict = None, end.value

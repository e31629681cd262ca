"""The network between instances and the server: its sender, number and seed decide what becomes of a message."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from tests.simulation.agenda import Agenda

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fate:
    """What befalls one message and its answer. Delays are seconds; unequal ones let messages overtake each other."""

    there: float = 0.0
    back: float = 0.0
    lost: bool = False
    answer_lost: bool = False
    again: float | None = None
    """When a second copy arrives, whose answer nobody hears."""


Network = Callable[[str, int], Fate]
"""Returns the fate of a sender's message, by its number; the same one whenever it is asked."""


def undisturbed(round_trip: float = 0.001) -> Network:
    """Every answer takes `round_trip` seconds, and nothing is lost."""
    return lambda _sender, _number: Fate(round_trip / 2, round_trip / 2)


@dataclass(frozen=True, slots=True)
class Weather:
    """Delays up to `slow` seconds, now and then up to `storm`; a part `loss` of all messages is lost, or comes twice.

    A fate depends on who sends and on its number alone: a scenario of which a piece is removed keeps the weather of
    the rest, as far as that sends the same.
    """

    seed: int
    slow: float
    storm: float
    loss: float

    def __call__(self, sender: str, number: int) -> Fate:
        chance = Random(f"{self.seed} {sender} {number}")
        return Fate(
            there=chance.uniform(0.0, self.slow if chance.random() < 0.9 else self.storm),
            back=chance.uniform(0.0, self.slow if chance.random() < 0.9 else self.storm),
            lost=chance.random() < self.loss,
            answer_lost=chance.random() < self.loss,
            again=chance.uniform(0.0, 3 * self.storm) if chance.random() < self.loss else None,
        )


class Post:
    """Carries messages over a network: exactly one of `answered` and `unanswered` is called for each."""

    __slots__ = ("_agenda", "_network", "_sent", "timeout", "undisturbed")

    def __init__(self, agenda: Agenda, network: Network, timeout: float) -> None:
        self.timeout = timeout
        self.undisturbed = False
        """Once true, nothing is slow or lost any more: what is pending then must come to its end."""
        self._agenda, self._network = agenda, network
        self._sent: Counter[str] = Counter()

    def send(
        self, sender: str, carry_out: Callable[[], T], answered: Callable[[T], None], unanswered: Callable[[], None]
    ) -> None:
        """Have `carry_out` done at the server, if the message arrives, and as often as it does."""
        self._sent[sender] += 1
        fate = Fate() if self.undisturbed else self._network(sender, self._sent[sender])
        over = False

        def end(how: Callable[[], None]) -> None:
            nonlocal over
            if not over:
                over = True
                how()

        def arrive() -> None:
            answer = carry_out()
            if not fate.answer_lost:
                self._agenda.after(fate.back, lambda: end(lambda: answered(answer)))

        if fate.lost or fate.answer_lost or fate.there + fate.back >= self.timeout:
            self._agenda.after(self.timeout, lambda: end(unanswered))
        if not fate.lost:
            self._agenda.after(fate.there, arrive)
        if fate.again is not None:
            self._agenda.after(fate.again, carry_out)

"""The asks about one key, and their answers, as far as they concern waiters of this process."""

from batchlimit.errors import StoreUnavailable
from batchlimit.lending.messages import SlotReply
from batchlimit.shared.line import Line, Waiter


class Asks:
    """It counts the asks, of which one is under way at most. It is pure.

    Attributes:
        sent: How many were sent so far.
        reply: The last reply; None: there was none.
        error: Why the last ask failed; None: it was answered.
    """

    __slots__ = ("_answered", "_line", "_told", "error", "reply", "sent")

    def __init__(self, line: Line) -> None:
        self._line = line
        self.reply: SlotReply | None = None
        self.error: StoreUnavailable | None = None
        self.sent = 0
        self._answered = 0  # the number of the last ask that was answered
        self._told = 0  # how many the store was told that wait here

    def __repr__(self) -> str:
        return f"<Asks: {self.sent}>"

    @property
    def are_in_vain(self) -> bool:
        """Whether somebody waits whom the last answer could not serve: a newcomer has no chance."""
        return self._told > 0 and self._line.patient > 0 and self._line.first.asks < self._answered

    def line_up(self, waiter: Waiter) -> bool:
        """Let a caller wait; return whether the store is to be asked now.

        It is for a caller who waits for no release, and where it knows of no more than half of those who wait.
        """
        waiter.asks = self.sent
        self._told = min(self._told, len(self._line))
        self._line.add(waiter)
        return not waiter.is_patient or len(self._line) >= 2 * self._told

    def send(self) -> None:
        """Count an ask. It tells of all who wait."""
        self.sent += 1
        self._told = self._line.patient

    def answer(self, reply: SlotReply) -> None:
        """Note the answer to the last ask."""
        self.reply, self._answered = reply, self.sent

    def concerned(self) -> list[Waiter]:
        """Return those who waited already when the last ask was sent."""
        return [waiter for waiter in self._line if waiter.asks < self.sent]

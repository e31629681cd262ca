"""One way of a relayed connection, in the weather that the network has just now."""

import math
import socket
import time
from collections import deque
from dataclasses import dataclass

_CHUNK = 1 << 18
# A throttled way passes on what it may in so many seconds, then pauses: often enough that nobody sees the pieces.
_SLICE = 0.01


@dataclass(slots=True)
class Weather:
    """What the network does to all that passes; it may change at any time, between two pieces."""

    delay: float
    """How long (s) a piece is held up, each way."""
    rate: float = math.inf
    """Bytes/s each way, for each connection."""
    passing: bool = True
    """Whether anything gets through; what does not is kept, as a sender would send it again."""
    replies: bool = True
    """Whether what the server says is heard; else it is lost, and what the client says still arrives."""


class Direction:
    """One way of a connection: what came in, each piece with the instant at which it is due. Order is kept."""

    def __init__(self, source: socket.socket, sink: socket.socket, weather: Weather, *, answers: bool) -> None:
        self.source, self.sink = source, sink
        self.ended = False  # the source has nothing more to say
        self.over = False  # nor has the sink anything more to hear
        self.stuck = False  # the sink takes no more for now
        self.answers = answers  # this is the way from the server
        self.torn = False  # something was asked or answered while replies were lost: what follows would make no sense
        self._weather = weather
        self._free_at = 0.0  # when a throttled way takes the next slice
        self._pieces: deque[tuple[float, memoryview]] = deque()

    @property
    def due(self) -> float:
        """When there is something to pass on; inf: not before something comes in, or the sink has room."""
        if not self._pieces or self.stuck or not self._weather.passing:
            return math.inf
        return max(self._pieces[0][0], self._free_at)

    def receive(self) -> None:
        """Take in what has arrived; an empty piece is the end."""
        try:
            piece = self.source.recv(_CHUNK)
        except ConnectionError:
            piece = b""
        if piece and not self._weather.replies:
            self.torn = True
            if self.answers:
                return
        self._note(piece)

    def end(self) -> None:
        """Let the sink hear, after all that has come in, that there is no more."""
        if not self.ended:
            self._note(b"")

    def pass_on(self, now: float) -> None:
        """Send all that is due, as far as the sink takes it."""
        self.stuck = False
        while self.due <= now:
            due, piece = self._pieces.popleft()
            if not piece:
                self._end()
                continue
            sent = self._send(piece[: self._allowed])
            self.stuck = not sent
            self._free_at = now + sent / self._weather.rate
            if sent < len(piece):
                self._pieces.appendleft((due, piece[sent:]))

    @property
    def _allowed(self) -> int:
        rate = self._weather.rate
        return _CHUNK if rate == math.inf else math.ceil(rate * _SLICE)

    def _note(self, piece: bytes) -> None:
        self.ended = not piece
        self._pieces.append((time.monotonic() + self._weather.delay, memoryview(piece)))

    def _send(self, piece: memoryview) -> int:
        try:
            return self.sink.send(piece)
        except BlockingIOError:
            return 0
        except ConnectionError:  # nobody hears it; that the other direction is over shows there
            return len(piece)

    def _end(self) -> None:
        self.over = True
        try:
            self.sink.shutdown(socket.SHUT_WR)
        except OSError:  # it is gone already
            pass
